"""The values that describe members; ``EngineReport`` is what crosses the process boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from serve_app.fleet.pace import Pace
from serve_app.openai.continuation import TokenLimits


class EngineState(Enum):
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine's answer to "describe", or what a health check found of an external upstream.

    ``headers`` open it (a secret, a key); they never appear in logs or responses (not in ``repr``).
    ``kv_cache_usage`` is a share from 0 to 1, ``kv_cache_tokens`` the cache's size (0: not known),
    ``capacity`` how many requests it runs at once. ``served_as`` is its own name for the model.
    ``api_prefix`` stands in place of ``/v1`` in a path.
    ``gives_token_ids``: it speaks vLLM's extensions, so that a cut answer can be continued on it.
    ``priority``: members of a lower number are asked first; ``weight``: share among equals. ``is_static``:
    it stays in the table whether or not it reports (an external upstream).
    """

    replica_id: str
    model: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    state: EngineState
    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    kv_cache_tokens: int = 0
    capacity: int = 1
    token_limits: TokenLimits = TokenLimits()
    served_as: str | None = None
    api_prefix: str = "/v1"
    gives_token_ids: bool = True
    priority: int = 0
    weight: float = 1.0
    is_static: bool = False


@dataclass(slots=True)
class Member:
    """One engine in the table: its newest report, and what this gateway knows beyond it.

    ``limit`` is the most requests that it is given at once, ``turn`` a virtual time that advances by
    1 / weight with every request (so that the lowest turn is whose turn it is). ``unanswered`` counts
    the requests that this gateway sent and that no first byte has answered yet, ``pending_tokens`` their
    estimated uncached prompts.
    """

    report: EngineReport
    limit: int
    in_flight: int = 0
    in_flight_at_report: int = 0
    unreachable_until: float = 0.0
    reported_at: float = 0.0
    turn: float = 0.0
    unanswered: int = 0
    pending_tokens: float = 0.0
    pace: Pace = field(default_factory=Pace)

    @property
    def name(self) -> str:
        """The value of ``x-served-by``."""
        return self.report.replica_id

    def can_serve(self, now: float) -> bool:
        return self.report.state is EngineState.READY and now >= self.unreachable_until

    @property
    def load(self) -> int:
        """Requests at the engine now: the report, up to one poll old, corrected by what this gateway has
        sent and ended since; never less than what is in flight from here."""
        since = self.in_flight - self.in_flight_at_report
        return max(self.report.running + self.report.waiting + since, self.in_flight)

    @property
    def has_room(self) -> bool:
        """It may be given another request."""
        return self.load < self.limit

    @property
    def backlog_s(self) -> float:
        """Seconds that a request sent now waits before its own prompt is begun.

        A full engine first has to end ``load + 1 - capacity`` requests, at ``capacity`` per service time
        (the M/D/c approximation). Then the prompts ahead are prefilled one after the other: this
        gateway's, and those that wait there for others (the report knows how many, not how long).
        """
        report, pace = self.report, self.pace
        tokens = self.pending_tokens
        if report.waiting > self.unanswered:
            tokens += (report.waiting - self.unanswered) * pace.prompt_tokens
        seconds = tokens * pace.prefill_s_per_token
        to_end = self.load + 1 - report.capacity
        if to_end > 0:
            seconds += to_end * pace.service_s / max(1, report.capacity)
        return seconds

    def expected_wait_s(self, new_tokens: float) -> float:
        """Seconds until the first token of a request that brings ``new_tokens`` of uncached prompt."""
        return self.backlog_s + new_tokens * self.pace.prefill_s_per_token
