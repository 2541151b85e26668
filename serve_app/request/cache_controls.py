"""The cache controls in a request's headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.request.headers import AGE, CACHE_TAGS, CACHE_THRESHOLD, CACHE_TTL, MAX_TAGS, invalid_header

__all__ = ["MAX_TAGS", "CacheControls", "parse_controls"]


@dataclass(frozen=True, slots=True)
class CacheControls:
    """``None`` means "as the settings say"; ages and times to live are in seconds."""

    read: bool = True
    write: bool = True
    max_age_s: float | None = None
    threshold: float | None = None
    ttl_s: float | None = None
    tags: tuple[str, ...] = ()


DEFAULT = CacheControls()
NAMES = frozenset({"cache-control", CACHE_THRESHOLD.name, CACHE_TTL.name, CACHE_TAGS.name})


def parse_controls(headers: Mapping[str, str]) -> CacheControls:
    """``cache-control`` (no-cache, no-store, max-age), ``x-cache-threshold``, ``-ttl`` and ``-tags``.

    Raises:
        BadRequest: a value is invalid; ``param`` names the header.
    """
    if NAMES.isdisjoint(headers):
        return DEFAULT
    directives = _directives(headers.get("cache-control", ""))
    return CacheControls(
        read="no-cache" not in directives and "no-store" not in directives,
        write="no-store" not in directives,
        max_age_s=_max_age_s(directives),
        threshold=CACHE_THRESHOLD.read(headers, None),
        ttl_s=CACHE_TTL.read(headers, None),
        tags=CACHE_TAGS.read(headers, ()),
    )


def _directives(value: str) -> dict[str, str]:
    parts = (part.strip().lower().partition("=") for part in value.split(","))
    return {name.strip(): argument.strip().strip('"') for name, _, argument in parts if name.strip()}


def _max_age_s(directives: Mapping[str, str]) -> float | None:
    value = directives.get("max-age")
    if value is None:
        return None
    age_s = AGE.parse(value)
    if age_s is None:
        raise invalid_header("cache-control", value, AGE.text, directive="max-age")
    return age_s
