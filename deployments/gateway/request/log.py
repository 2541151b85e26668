"""Log lines about finished requests, written a moment later in small batches: no answer waits for them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextvars import Context
from typing import Literal

from serve_app.request.log_line import Bound, RefusalBound, bound_of, is_probe, log_line
from serve_app.request.record import RequestRecord

DELAY_S = 0.1
BATCH = 16
"""Lines that are written before the event loop may turn to other work: about 0.5 ms."""

FILE_ONLY = {"log_to_stderr": False}
"""Serve's mark: the line goes to the replica's log file, not to the terminal of the one who started it."""

logger = logging.getLogger("ray.serve")


class RequestLog:
    """A sink. Made inside a running event loop."""

    def __init__(self, form: Literal["text", "json"], refused_per_s: float) -> None:
        self._form = form
        self._bounds = {bound: RefusalBound(refused_per_s, time.monotonic()) for bound in Bound}
        self._waiting: deque[RequestRecord] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __call__(self, record: RequestRecord) -> None:
        if is_probe(record):
            return
        bound = bound_of(record)
        if bound is not None and not self._bounds[bound].allows(time.monotonic()):
            return
        self._waiting.append(record)
        if self._timer is None:
            self._write_later(DELAY_S)

    def close(self) -> None:
        """Write what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._write_one()

    def _write_later(self, delay_s: float) -> None:
        # In a context of its own: these lines belong to no request that runs now.
        self._timer = self._loop.call_later(delay_s, self._write, context=Context())

    def _write(self) -> None:
        self._timer = None
        for _ in range(min(BATCH, len(self._waiting))):
            self._write_one()
        if self._waiting:
            self._write_later(0)

    def _write_one(self) -> None:
        record = self._waiting.popleft()
        for kind, bound in self._bounds.items():
            left_out = bound.take_left_out()
            if left_out:
                logger.warning(
                    "%d %s have no line (logs.refused_per_s)", left_out, kind.value, extra=FILE_ONLY
                )
        logger.info("%s", log_line(record, self._form), extra=FILE_ONLY)
