"""Show what keys, users, tenants and models used, as a running endpoint has counted it.

    promptly usage
    promptly usage --from 2026-01-01 --to 2026-01-31 --by month,tenant
    promptly usage --tenant research --by day,user,model --csv > usage.csv

Days are UTC days. The key of an administrator, or of a team's own administrator for that team, is read from
PROMPTLY_ADMIN_KEY, PROMPTLY_ADMIN_TOKEN or the file that --key-file names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from deployments.cli.endpoint import Administrator, CannotConnect, add_endpoint, shown
from serve_app.usage.query import FILTERS

PATH = "/admin/usage"
COLUMNS = (
    "requests",
    "refused",
    "tokens_in",
    "tokens_out",
    "cache_hits",
    "gpu_s",
    "cost",
    "gpu_cost",
    "saved",
)
"""Columns of the table; CSV has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly usage``."""
    add_endpoint(parser)
    parser.add_argument("--from", dest="since", metavar="DAY", help="first UTC day, such as 2026-01-31")
    parser.add_argument("--to", dest="until", metavar="DAY", help="last UTC day")
    for name in FILTERS:
        parser.add_argument(f"--{name}", help="only this one" if name != "key" else "only this key's id")
    parser.add_argument("--by", help="of day, month, tenant, key, user, model; default: day,tenant,model")
    parser.add_argument("--csv", action="store_true", help="all columns, as CSV")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not options.csv:
        return shown(options, _done, _lines)
    try:
        sys.stdout.write(Administrator(options, PATH).text({**_query(options), "format": "csv"}))
    except CannotConnect as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _done(options: argparse.Namespace) -> dict[str, Any]:
    return Administrator(options, PATH).asked(f"?{urlencode(_query(options))}")


def _query(options: argparse.Namespace) -> dict[str, str]:
    asked = {"from": options.since, "to": options.until, "by": options.by}
    asked |= {name: getattr(options, name) for name in FILTERS}
    return {name: value for name, value in asked.items() if value is not None}


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    yield table(answer)


def table(usage: Mapping[str, Any]) -> str:
    """Columns of equal width, with the total below."""
    by = usage["by"]
    rows = [[str(row[name]) or "-" for name in by] + _numbers(row) for row in usage["usage"]]
    total = (["total", *[""] * (len(by) - 1)] if by else []) + _numbers(usage["total"])
    lines = [[*by, *COLUMNS], *rows, total]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join(
        "  ".join(
            cell.ljust(width) if place < len(by) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
    return text + ("\nThere are more rows: ask for fewer days, or for --csv." if usage["more"] else "")


def _numbers(row: Mapping[str, Any]) -> list[str]:
    return [f"{row[name]:,}" if isinstance(row[name], int) else f"{row[name]:,.4g}" for name in COLUMNS]
