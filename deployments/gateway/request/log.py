"""Log lines about finished requests."""

from __future__ import annotations

import logging
import time
from typing import Literal

from serve_app.request.log_line import Bound, RefusalBound, bound_of, is_probe, log_line
from serve_app.request.record import RequestRecord

FILE_ONLY = {"log_to_stderr": False}
"""Serve's mark: the line goes to the replica's log file, not to the terminal of the one who started it."""

logger = logging.getLogger("ray.serve")


class RequestLog:
    """A sink."""

    def __init__(self, form: Literal["text", "json"], refused_per_s: float) -> None:
        self._form = form
        self._bounds = {bound: RefusalBound(refused_per_s, time.monotonic()) for bound in Bound}

    def __call__(self, record: RequestRecord) -> None:
        if is_probe(record):
            return
        bound = bound_of(record)
        if bound is not None and not self._bounds[bound].allows(time.monotonic()):
            return
        self._say_left_out()
        logger.info("%s", log_line(record, self._form), extra=FILE_ONLY)

    def _say_left_out(self) -> None:
        for kind, bound in self._bounds.items():
            left_out = bound.take_left_out()
            if left_out:
                logger.warning(
                    "%d %s have no line (logs.refused_per_s)", left_out, kind.value, extra=FILE_ONLY
                )
