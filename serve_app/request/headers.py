"""The request headers that this application reads, each with what it may say.

``cache-control`` has directives of its own (``cache_controls.py``), and ``x-model-tier`` takes what the
settings name (``serve_app/model_choice/chooser.py``); a wrong value of either is refused in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from serve_app.errors import BadRequest

T = TypeVar("T")

SHOWN = 40
"""Characters of a wrong value that an error repeats."""

DAY_MS = 24 * 3600 * 1000
MAX_TAGS = 16

DIGIT = re.compile(r"[0-9]")
MILLISECONDS = re.compile(r"[0-9]{1,8}")
TAG = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def invalid_header(name: str, value: str, expected: str, *, directive: str = "") -> BadRequest:
    """The one error for a header whose value makes no sense. ``directive``: the part of it that is wrong."""
    what = f"Header `{name}`: `{directive}`" if directive else f"Header `{name}`"
    return BadRequest(f"{what} is {value[:SHOWN]!r}; expected {expected}.", param=name, code="invalid_header")


@dataclass(frozen=True, slots=True)
class RequestHeader(Generic[T]):
    """One header. ``parse`` is given its value without spaces around it, and returns ``None`` for a wrong
    one."""

    name: str
    expected: str
    parse: Callable[[str], T | None]

    def read(self, headers: Mapping[str, str], default: T) -> T:
        """What the header says; ``default`` where it is missing.

        Raises:
            BadRequest: its value is wrong; ``param`` names the header.
        """
        value = headers.get(self.name)
        if value is None:
            return default
        parsed = self.parse(value.strip())
        if parsed is None:
            raise invalid_header(self.name, value, self.expected)
        return parsed


@dataclass(frozen=True, slots=True)
class Range:
    """What a number may be."""

    low: float
    high: float
    text: str

    def parse(self, value: str) -> float | None:
        try:
            number = float(value)
        except ValueError:
            return None
        return number if self.low <= number <= self.high else None


AGE = Range(0, 1e9, "seconds from 0 to 1e9")
TTL = Range(0.001, 1e9, "seconds from 0.001 to 1e9")
THRESHOLD = Range(0, 1, "a number from 0 to 1")


def _digit(value: str) -> int | None:
    return int(value) if DIGIT.fullmatch(value) else None


def _switch(value: str) -> bool | None:
    return {"on": True, "off": False}.get(value.lower())


def _milliseconds(value: str) -> float | None:
    """The header's milliseconds, in seconds."""
    return int(value) / 1000 if MILLISECONDS.fullmatch(value) and 1 <= int(value) <= DAY_MS else None


def _tags(value: str) -> tuple[str, ...] | None:
    tags = tuple(tag for tag in (part.strip() for part in value.split(",")) if tag)
    return tags if len(tags) <= MAX_TAGS and all(map(TAG.fullmatch, tags)) else None


PRIORITY = RequestHeader("x-priority", "a digit from 0 (first) to 9 (last)", _digit)
FAILOVER = RequestHeader("x-failover", "'on' or 'off'", _switch)
TIMEOUT = RequestHeader("x-request-timeout-ms", f"milliseconds from 1 to {DAY_MS}", _milliseconds)
CACHE_THRESHOLD: RequestHeader[float | None] = RequestHeader(
    "x-cache-threshold", THRESHOLD.text, THRESHOLD.parse
)
CACHE_TTL: RequestHeader[float | None] = RequestHeader("x-cache-ttl", TTL.text, TTL.parse)
CACHE_TAGS = RequestHeader(
    "x-cache-tags",
    f"at most {MAX_TAGS} tags of letters, digits, '_', '.', ':' or '-', 64 characters each, "
    "separated by commas",
    _tags,
)


def require_utf8(headers: Collection[tuple[bytes, bytes]]) -> None:
    """Raises: BadRequest: a header value is not valid UTF-8; the error names the first such header."""
    if b"".join([value for _, value in headers]).isascii():
        return
    for name, value in headers:
        try:
            value.decode()
        except UnicodeDecodeError:
            shown = name.decode("latin-1")
            raise BadRequest(
                f"Header `{shown}` is not valid UTF-8.", param=shown, code="invalid_header"
            ) from None
