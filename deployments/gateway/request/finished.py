"""Finished requests, handed to all that look at them: each sink gets every request's record once. Of a
request that another exchange goes on with, that is the other's."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context

import msgspec

from deployments.gateway.request.exchange import Exchange
from serve_app.request.record import RequestRecord, record_of

Sink = Callable[[RequestRecord], None]
"""Called in the event loop a moment after the request's last byte: it must return in microseconds and wait
for nothing."""

CACHE = "cache"
"""What ``x-served-by`` says of an answer that no member gave."""

logger = logging.getLogger("ray.serve")


DELAY_S = 0.1
"""From a request's end until ``later`` get its record."""

BATCH, PAUSE_S = 4, 0.005
"""So many records are handed on at once, a fraction of a millisecond, then other work has its turn."""

BACKLOG = 50
"""Of a long backlog this part is handed on at once, so that it does not grow for ever."""


class Finished:
    """The one place where a request's record is made. ``later`` get it a moment after the other sinks, in
    small batches: many streams often end together, and the next requests arrive just then. A sink that fails
    is logged once; it hurts neither a request nor another sink. Made inside a running event loop."""

    def __init__(self, sinks: Sequence[Sink], later: Sequence[Sink] = ()) -> None:
        self._sinks, self._later = tuple(sinks), tuple(later)
        self._failed: set[Sink] = set()
        self._waiting: deque[tuple[float, RequestRecord]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __call__(self, exchange: Exchange) -> RequestRecord:
        record = _record(exchange)
        if exchange.account is not None:
            estimated = exchange.account.settle(record)
            if estimated is not None:
                record = msgspec.structs.replace(record, estimated=estimated)
        if exchange.is_handed_over:
            return record
        self._hand_to(self._sinks, record)
        self._waiting.append((self._loop.time() + DELAY_S, record))
        if self._timer is None:
            self._hand_on_later(DELAY_S)
        return record

    def close(self) -> None:
        """Give the sinks the records that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._hand_to(self._later, self._waiting.popleft()[1])

    def _hand_on_later(self, delay_s: float) -> None:
        # In a context of its own: what a sink logs belongs to no request that runs now.
        self._timer = self._loop.call_later(delay_s, self._hand_on_batch, context=Context())

    def _hand_on_batch(self) -> None:
        self._timer = None
        now = self._loop.time()
        for _ in range(max(BATCH, len(self._waiting) // BACKLOG)):
            if not self._waiting or self._waiting[0][0] > now:
                break
            self._hand_to(self._later, self._waiting.popleft()[1])
        if self._waiting:
            self._hand_on_later(max(PAUSE_S, self._waiting[0][0] - now))

    def _hand_to(self, sinks: Sequence[Sink], record: RequestRecord) -> None:
        for sink in sinks:
            try:
                sink(record)
            except Exception:
                if sink not in self._failed:
                    self._failed.add(sink)
                    logger.exception(
                        "%r failed on a finished request (%s); said only once", sink, record.request_id
                    )


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
