"""The cache controls in a request's headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from serve_app.errors import BadRequest

TAG = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
MAX_TAGS = 16


class Range(NamedTuple):
    """The allowed range of a number in a header."""

    low: float
    high: float
    text: str


AGE = Range(0, 1e9, "seconds from 0 to 1e9")
TTL = Range(0.001, 1e9, "seconds from 0.001 to 1e9")
THRESHOLD = Range(0, 1, "a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class CacheControls:
    """``None`` means "as the settings say"; ages and times to live are in seconds."""

    read: bool = True
    write: bool = True
    max_age_s: float | None = None
    threshold: float | None = None
    ttl_s: float | None = None
    tags: tuple[str, ...] = ()


def parse_controls(headers: Mapping[str, str]) -> CacheControls:
    """``cache-control`` (no-cache, no-store, max-age), ``x-cache-threshold``, ``-ttl`` and ``-tags``.

    Raises:
        BadRequest: a value is invalid; ``param`` names the header.
    """
    directives = _directives(headers.get("cache-control", ""))
    return CacheControls(
        read="no-cache" not in directives and "no-store" not in directives,
        write="no-store" not in directives,
        max_age_s=_number(directives, "max-age", AGE, header="cache-control"),
        threshold=_number(headers, "x-cache-threshold", THRESHOLD),
        ttl_s=_number(headers, "x-cache-ttl", TTL),
        tags=_tags(headers.get("x-cache-tags", "")),
    )


def _directives(value: str) -> dict[str, str]:
    parts = (part.strip().lower().partition("=") for part in value.split(","))
    return {name.strip(): argument.strip().strip('"') for name, _, argument in parts if name.strip()}


def _number(values: Mapping[str, str], name: str, allowed: Range, *, header: str = "") -> float | None:
    """The number under ``name``, if present; ``header`` is the header's name where it differs."""
    value = values.get(name)
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = float("nan")  # inside no range
    if not allowed.low <= number <= allowed.high:
        what = f"Header `{header}`: `{name}`" if header else f"Header `{name}`"
        message = f"{what} is {value[:80]!r}; expected {allowed.text}."
        raise BadRequest(message, param=header or name, code="invalid_header")
    return number


def _tags(value: str) -> tuple[str, ...]:
    tags = tuple(tag for tag in (part.strip() for part in value.split(",")) if tag)
    wrong = next((tag for tag in tags if not TAG.fullmatch(tag)), None)
    if wrong is not None or len(tags) > MAX_TAGS:
        raise BadRequest(
            f"Header `x-cache-tags` is {value[:80]!r}; expected at most {MAX_TAGS} tags of letters, digits, "
            "'_', '.', ':' or '-', 64 characters each, separated by commas.",
            param="x-cache-tags",
            code="invalid_header",
        )
    return tags
