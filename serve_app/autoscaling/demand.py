"""One gateway's counters of a model's traffic, for the autoscaler."""

from __future__ import annotations

from dataclasses import dataclass, field

SETTLED_S = 0.5
"""A request that is withdrawn sooner did not need an engine: the cache answered it (with ``cache.race`` both
are asked at the same time; a look-up takes about ten milliseconds), or the client left at once."""

FORGET_S = 10.0
"""A gateway whose last report is older than this has stopped. Gateways report every second."""


@dataclass(frozen=True, slots=True)
class GatewayLoad:
    """One gateway's report. ``number`` grows with every report. ``arrived`` to ``late_first_tokens`` are
    totals since the gateway started: requests that the cache did not answer, their prompt tokens (an
    estimate), first tokens of streams, and those of them that came later than the objective. ``queued`` is
    how many requests wait in its queue now, ``queued_tokens`` the size of their prompts."""

    gateway: str
    number: int = 0
    arrived: float = 0.0
    arrived_tokens: float = 0.0
    first_tokens: float = 0.0
    late_first_tokens: float = 0.0
    queued: float = 0.0
    queued_tokens: float = 0.0


@dataclass(slots=True, eq=False)
class Arrival:
    """One request for an engine, made at ``at`` (monotonic seconds). ``cold``: no replica could take it when
    it arrived."""

    tokens: float
    at: float
    cold: bool
    is_counted: bool = False


@dataclass(slots=True)
class Demand:
    """One gateway's counters of one model. Every request starts with ``came`` and ends with ``began``,
    ``failed``, ``withdrew`` or ``went_elsewhere``. A missing or repeated end is harmless."""

    gateway: str
    objective_s: float
    _open: set[Arrival] = field(default_factory=set)
    _reports: int = 0
    _arrived: float = 0.0
    _arrived_tokens: float = 0.0
    _first_tokens: float = 0.0
    _late: float = 0.0

    def came(self, tokens: float, now: float, *, cold: bool) -> Arrival:
        """A request with a prompt of about ``tokens`` tokens needs an engine."""
        arrival = Arrival(tokens, now, cold)
        self._open.add(arrival)
        return arrival

    def began(self, arrival: Arrival, ttft_s: float | None) -> None:
        """The answer began. ``ttft_s`` is a stream's time to first token since the request reached the
        gateway, ``None`` for an answer that is not streamed. The time of a ``cold`` request is not counted:
        it waited for a replica to start, which says nothing about the fleet's size."""
        if arrival not in self._open:
            return
        self._close(arrival)
        if ttft_s is not None and not arrival.cold:
            self._first_tokens += 1
            self._late += ttft_s > self.objective_s

    def failed(self, arrival: Arrival) -> None:
        """The request was refused, timed out or broke; it still counts as an arrival."""
        if arrival in self._open:
            self._close(arrival)

    def withdrew(self, arrival: Arrival, now: float) -> None:
        """The caller no longer needs an engine. Within ``SETTLED_S`` the request does not count at all."""
        if arrival in self._open and now - arrival.at >= SETTLED_S:
            self._count(arrival)
        self._open.discard(arrival)

    def went_elsewhere(self, arrival: Arrival) -> None:
        """A member that is not scaled here answers (an external upstream)."""
        self._open.discard(arrival)

    def report(self, queued: float, queued_tokens: float, now: float) -> GatewayLoad:
        """The counters now; ``queued`` and ``queued_tokens`` describe the gateway's queue."""
        for arrival in self._open:
            if now - arrival.at >= SETTLED_S:
                self._count(arrival)
        self._reports += 1
        return GatewayLoad(
            gateway=self.gateway,
            number=self._reports,
            arrived=self._arrived,
            arrived_tokens=self._arrived_tokens,
            first_tokens=self._first_tokens,
            late_first_tokens=self._late,
            queued=queued,
            queued_tokens=queued_tokens,
        )

    def _close(self, arrival: Arrival) -> None:
        self._count(arrival)
        self._open.discard(arrival)

    def _count(self, arrival: Arrival) -> None:
        if not arrival.is_counted:
            arrival.is_counted = True
            self._arrived += 1
            self._arrived_tokens += arrival.tokens


class GatewayReports:
    """The newest report of each gateway that one replica has received."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[float, GatewayLoad]] = {}

    def record(self, load: GatewayLoad, now: float) -> None:
        self._reports[load.gateway] = now, load

    def newest(self, now: float) -> list[GatewayLoad]:
        """The newest reports, without gateways that have sent none for ``FORGET_S``."""
        self._reports = {name: report for name, report in self._reports.items() if now - report[0] < FORGET_S}
        return [load for _, load in self._reports.values()]
