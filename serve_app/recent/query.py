"""Which of the newest requests are to be shown."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from serve_app.errors import BadRequest
from serve_app.request.record import RequestRecord

ERROR = "error"
"""The outcome of a request that failed, whatever the cache said."""

MOST = 500
"""Requests of one page."""

TEXTS = ("id", "model", "tenant", "session", "outcome")
NUMBERS = ("slower_ms", "before", "limit")


class Query(msgspec.Struct, frozen=True):
    """``None`` fits every request. ``slower_ms``: milliseconds that the whole request took at least;
    ``before``: Unix nanoseconds before which it ended."""

    id: str | None = None
    model: str | None = None
    tenant: str | None = None
    session: str | None = None
    outcome: str | None = None
    slower_ms: float | None = None
    before: int | None = None
    limit: int = 100

    def fits(self, record: RequestRecord) -> bool:
        return (
            self.id in (None, record.request_id)
            and self.model in (None, record.model)
            and self.tenant in (None, record.tenant)
            and self.session in (None, record.session)
            and self.outcome in (None, outcome_of(record))
            and (self.slower_ms is None or record.total_ms >= self.slower_ms)
            and (self.before is None or ended_ns(record) < self.before)
        )


def outcome_of(record: RequestRecord) -> str | None:
    """``error``, or what ``x-cache`` said."""
    return ERROR if record.error is not None or record.status >= 400 else record.cache


def ended_ns(record: RequestRecord) -> int:
    """When its last byte was sent, Unix nanoseconds."""
    return record.start_unix_ns + int(record.total_ms * 1e6)


def parse_query(given: Mapping[str, str]) -> Query:
    """Raises:
    BadRequest: an unknown parameter, or a wrong number; ``param`` names it.
    """
    unknown = sorted(given.keys() - {*TEXTS, *NUMBERS})
    if unknown:
        known = ", ".join((*TEXTS, *NUMBERS))
        raise BadRequest(f"Unknown query parameter {unknown[0]!r}; known: {known}.", param=unknown[0])
    request_id, model, tenant, session, outcome = (given.get(name) or None for name in TEXTS)
    return Query(
        id=request_id,
        model=model,
        tenant=tenant,
        session=session,
        outcome=outcome,
        slower_ms=_number(given, "slower_ms", 1e9),
        before=_whole(given, "before", 0, 1 << 63),
        limit=_whole(given, "limit", 1, MOST) or Query().limit,
    )


def _number(given: Mapping[str, str], name: str, most: float) -> float | None:
    text = given.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:  # also refuses NaN
        raise BadRequest(f"`{name}` is {text[:40]!r}; expected a number from 0 to {most:g}.", param=name)
    return value


def _whole(given: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = given.get(name)
    if not text:
        return None
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else -1
    if not least <= value <= most:
        raise BadRequest(f"`{name}` is {text[:40]!r}; expected {least} to {most}.", param=name)
    return value
