"""The values that describe engines; ``EngineReport`` is what crosses the process boundary."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class EngineState(Enum):
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine's answer to "describe": where it listens and how loaded it is.

    ``secret`` opens its private listener; it never appears in logs or responses (not in ``repr``).
    ``kv_cache_usage`` is a share from 0 to 1.
    """

    replica_id: str
    model: str
    url: str
    secret: str = field(repr=False)
    state: EngineState
    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    capacity: int = 1


@dataclass(slots=True)
class Member:
    """One engine in the table: its newest report, and what this gateway has in flight there."""

    report: EngineReport
    in_flight: int = 0
    unreachable_until: float = 0.0
    reported_at: float = 0.0

    @property
    def name(self) -> str:
        """The value of ``x-served-by``."""
        return self.report.replica_id

    def can_serve(self, now: float) -> bool:
        return self.report.state is EngineState.READY and now >= self.unreachable_until

    @property
    def load(self) -> int:
        """Requests at the engine. A report is up to one poll old; what this gateway sent since is added
        by taking the larger of the two counts (other gateways' requests are in the report)."""
        return max(self.report.running + self.report.waiting, self.in_flight)
