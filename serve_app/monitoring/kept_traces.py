"""Which requests' traces are kept although the head's sampling would leave them out: failures, and the
slowest."""

from __future__ import annotations

import heapq

from serve_app.monitoring.intake import outcome_of
from serve_app.request.record import LASTING, RequestRecord
from serve_app.settings.traces import TraceSettings

WINDOW_S = 60.0

FAILURE = "failure"
SLOW = "slow"


def span_key(trace_id: int, span_id: int) -> str:
    """Names a gateway's span of a request, as W3C's ``traceparent`` does."""
    return f"{trace_id:032x}-{span_id:016x}"


class KeptTraces:
    """Decides at each request's end, so nothing is held back: of a window, a request is kept that is among
    the ``slowest`` so far. So the slowest of a whole window are always among those kept, with some more from
    its beginning (about ``slowest * ln(requests / slowest)``)."""

    def __init__(self, settings: TraceSettings) -> None:
        self._failures = settings.keep_failures
        self._slowest = settings.keep_slowest
        self._window_began = float("-inf")
        self._longest_ms: list[float] = []  # a heap: the shortest of them first

    def reason(self, record: RequestRecord, now: float) -> str | None:
        """Why the trace is kept; ``None``: the head's decision stands. ``now``: monotonic seconds."""
        slow = self._is_slow(record, now)
        if self._failures and outcome_of(record) == "failed":
            return FAILURE
        return SLOW if slow else None

    def _is_slow(self, record: RequestRecord, now: float) -> bool:
        if not self._slowest or record.model is None or record.endpoint == LASTING:
            return False
        if now - self._window_began >= WINDOW_S:
            self._window_began = now
            self._longest_ms.clear()
        if len(self._longest_ms) < self._slowest:
            heapq.heappush(self._longest_ms, record.total_ms)
            return True
        return heapq.heappushpop(self._longest_ms, record.total_ms) < record.total_ms
