"""Finished requests, handed to all that look at them: each sink gets every request's record once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from deployments.gateway.request.exchange import Exchange
from serve_app.request.record import RequestRecord, record_of

Sink = Callable[[RequestRecord], None]
"""Called in the event loop after the request's last byte: it must return in microseconds and wait for
nothing."""

CACHE = "cache"
"""What ``x-served-by`` says of an answer that no member gave."""

logger = logging.getLogger("ray.serve")


class Finished:
    """The one place where a request's record is made. A sink that fails is logged once; it hurts neither a
    request nor another sink."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._failed: set[int] = set()

    def __call__(self, exchange: Exchange) -> RequestRecord:
        record = _record(exchange)
        for number, sink in enumerate(self._sinks):
            try:
                sink(record)
            except Exception:
                if number not in self._failed:
                    self._failed.add(number)
                    logger.exception("%r failed on a finished request; said only once", sink)
        return record


def _record(exchange: Exchange) -> RequestRecord:
    headers, facts = exchange.response_headers, exchange.facts
    facts.cache = headers.get("x-cache", facts.cache)
    member = headers.get("x-served-by")
    return record_of(
        facts,
        exchange.timeline,
        request_id=exchange.request_id,
        trace_id=exchange.trace_id,
        method=exchange.method,
        status=exchange.status,
        member=None if member == CACHE else member,
        similarity=_number(headers.get("x-cache-similarity")),
        score=_number(headers.get("x-cache-score")),
        entry=headers.get("x-cache-entry"),
    )


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
