"""What one gateway knows of a model's traffic, counted for the autoscaler."""

from __future__ import annotations

from dataclasses import dataclass, field

SETTLED_S = 0.5
"""A request that is given up sooner has never wanted an engine: the cache, asked beside it, has answered
(``cache.race``; a look-up's budget is some ten milliseconds), or the client has left at once."""

FORGET_S = 10.0
"""Gateways report every second."""


@dataclass(frozen=True, slots=True)
class GatewayLoad:
    """One gateway's report. ``number`` grows with every report. ``arrived`` to ``late_first_tokens`` are
    totals since the gateway started: requests that the cache did not answer, their prompt tokens (an
    estimate), first tokens of streams, and those of them beyond the objective. ``queued`` requests wait in
    its line now, ``queued_tokens`` is their prompts."""

    gateway: str
    number: int = 0
    arrived: float = 0.0
    arrived_tokens: float = 0.0
    first_tokens: float = 0.0
    late_first_tokens: float = 0.0
    queued: float = 0.0
    queued_tokens: float = 0.0


@dataclass(slots=True, eq=False)
class Asked:
    """One request on its way to an engine since ``at`` (monotonic seconds). ``cold``: no replica could take
    it when it came."""

    tokens: float
    at: float
    cold: bool
    is_counted: bool = False


@dataclass(slots=True)
class Demand:
    """One gateway's counters of one model. Every request is ``came``, then ``began``, ``failed``,
    ``withdrew`` or ``went_elsewhere``; all but the first may be left out and do no harm twice."""

    gateway: str
    objective_s: float
    _open: set[Asked] = field(default_factory=set)
    _reports: int = 0
    _arrived: float = 0.0
    _arrived_tokens: float = 0.0
    _first_tokens: float = 0.0
    _late: float = 0.0

    def came(self, tokens: float, now: float, *, cold: bool) -> Asked:
        """A request with a prompt of about so many ``tokens`` asks for an engine."""
        asked = Asked(tokens, now, cold)
        self._open.add(asked)
        return asked

    def began(self, asked: Asked, ttft_s: float | None) -> None:
        """Its first bytes are there. ``ttft_s``: for a stream, since the request came to the gateway. What
        came when there was no replica waited for a start: that says nothing of the fleet's size."""
        if asked not in self._open:
            return
        self._close(asked)
        if ttft_s is not None and not asked.cold:
            self._first_tokens += 1
            self._late += ttft_s > self.objective_s

    def failed(self, asked: Asked) -> None:
        """Refused, late or broken: it came all the same."""
        if asked in self._open:
            self._close(asked)

    def withdrew(self, asked: Asked, now: float) -> None:
        """Whoever asked does not any more."""
        if asked in self._open and now - asked.at >= SETTLED_S:
            self._count(asked)
        self._open.discard(asked)

    def went_elsewhere(self, asked: Asked) -> None:
        """It was given to a member that is none of ours to scale."""
        self._open.discard(asked)

    def report(self, queued: float, queued_tokens: float, now: float) -> GatewayLoad:
        """The counters now; ``queued`` and ``queued_tokens`` are the line before the engines."""
        for asked in self._open:
            if now - asked.at >= SETTLED_S:
                self._count(asked)
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

    def _close(self, asked: Asked) -> None:
        self._count(asked)
        self._open.discard(asked)

    def _count(self, asked: Asked) -> None:
        if not asked.is_counted:
            asked.is_counted = True
            self._arrived += 1
            self._arrived_tokens += asked.tokens


class GatewayReports:
    """What gateways have told one replica: the newest of each, of those that were heard of late."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, GatewayLoad]] = {}

    def hear(self, load: GatewayLoad, now: float) -> None:
        self._heard[load.gateway] = now, load

    def newest(self, now: float) -> list[GatewayLoad]:
        """A gateway that has been silent for ``FORGET_S`` is gone, and so is its line."""
        self._heard = {name: heard for name, heard in self._heard.items() if now - heard[0] < FORGET_S}
        return [load for _, load in self._heard.values()]
