"""Usage as JSON values and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from serve_app.usage.rows import COUNTS, WHOLE, Counts, UsagePage

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""A spreadsheet takes a cell that begins so for a formula, also behind spaces. The last are full-width."""

DECIMALS = 6


def shown(page: UsagePage, by: Sequence[str]) -> dict[str, Any]:
    return {
        "by": list(by),
        "usage": [dict(zip(by, group.of, strict=True)) | _numbers(group.counts) for group in page.groups],
        "total": _numbers(page.total),
        "more": page.more,
    }


def as_csv(page: UsagePage, by: Sequence[str]) -> str:
    """A line per group, after a line of names; lines end as RFC 4180 wants."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow((*by, *COUNTS))
    for group in page.groups:
        writer.writerow((*map(safe_cell, group.of), *_numbers(group.counts).values()))
    return written.getvalue()


def safe_cell(text: str) -> str:
    """A text that no spreadsheet runs: an apostrophe before what would be a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA) else text


def _numbers(counts: Counts) -> dict[str, int | float]:
    return {
        name: int(value) if name in WHOLE else round(value, DECIMALS)
        for name, value in zip(COUNTS, counts.values(), strict=True)
    }
