"""Which usage is to be shown, and how it is grouped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import msgspec

from serve_app.errors import BadRequest
from serve_app.usage.rows import DIMENSIONS

FILTERS = ("tenant", "user", "key", "model")
GROUPS = (*DIMENSIONS, "month")
DEFAULT_BY = ("day", "tenant", "model")
FORMATS = ("json", "csv")
MOST_GROUPS = 50_000
DEFAULT_GROUPS = 1_000
MOST_CHARS = 200


class UsageQuery(msgspec.Struct, frozen=True):
    """``since`` and ``until``: UTC days, both included; ``None`` fits all. ``by``: what the rows are grouped
    by, of ``GROUPS``, in the order of the answer's."""

    since: str | None = None
    until: str | None = None
    tenant: str | None = None
    user: str | None = None
    key: str | None = None
    model: str | None = None
    by: tuple[str, ...] = DEFAULT_BY
    limit: int = DEFAULT_GROUPS


PARAMETERS = ("from", "to", *FILTERS, "by", "limit", "format")


def parse_usage_query(given: Mapping[str, str]) -> UsageQuery:
    """``format`` is for :func:`format_of`.

    Raises:
        BadRequest: an unknown parameter or a wrong value; ``param`` names it.
    """
    unknown = sorted(given.keys() - set(PARAMETERS))
    if unknown:
        known = ", ".join(PARAMETERS)
        raise BadRequest(
            f"Unknown query parameter {unknown[0][:40]!r}; known: {known}.", param=unknown[0][:40]
        )
    since, until = _day(given, "from"), _day(given, "to")
    if since is not None and until is not None and until < since:
        raise BadRequest(f"`to` is {until}, before `from`, which is {since}.", param="to")
    tenant, user, key, model = (_text(given, name) for name in FILTERS)
    return UsageQuery(since, until, tenant, user, key, model, _by(given), _limit(given))


def format_of(given: Mapping[str, str]) -> str:
    """``json`` or ``csv``. Raises: BadRequest."""
    wanted = given.get("format") or FORMATS[0]
    if wanted not in FORMATS:
        raise BadRequest(f"`format` is {wanted[:40]!r}; expected json or csv.", param="format")
    return wanted


def _day(given: Mapping[str, str], name: str) -> str | None:
    text = given.get(name)
    if not text:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadRequest(
            f"`{name}` is {text[:40]!r}; expected a UTC day such as 2026-01-31.", param=name
        ) from None


def _text(given: Mapping[str, str], name: str) -> str | None:
    """``name=`` selects the rows where it is empty."""
    text = given.get(name)
    if text is not None and len(text) > MOST_CHARS:
        raise BadRequest(f"`{name}` has {len(text)} characters; at most {MOST_CHARS}.", param=name)
    return text


def _by(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("by")
    if text is None:
        return DEFAULT_BY
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    wrong = [name for name in names if name not in GROUPS]
    if wrong:
        raise BadRequest(f"`by` names {wrong[0][:40]!r}; known: {', '.join(GROUPS)}.", param="by")
    return names


def _limit(given: Mapping[str, str]) -> int:
    text = given.get("limit")
    if not text:
        return MOST_GROUPS if given.get("format") == "csv" else DEFAULT_GROUPS
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0
    if not 1 <= value <= MOST_GROUPS:
        raise BadRequest(f"`limit` is {text[:40]!r}; expected 1 to {MOST_GROUPS}.", param="limit")
    return value
