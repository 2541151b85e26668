"""The state of an external upstream, from its health checks. A late answer alone is no failure: the server
may be busy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from serve_app.fleet.members import EngineState

TIMEOUTS_TO_FAIL = 3
"""This many health checks in a row that time out, without a byte of any other answer meanwhile, count as a
failure. A server that computes on its event loop does not answer while a step runs."""


class Probe(Enum):
    """The result of one health check."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """The server reports itself unhealthy, or its answer is not HTTP."""
    REFUSED = "refused"
    """The connection was refused."""
    TIMED_OUT = "timed out"
    """No answer in time."""


@dataclass(slots=True)
class Health:
    """The health of one upstream, over time."""

    state: EngineState = EngineState.WARMING
    timeouts: int = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether it was healthy but the last check timed out: check again soon."""
        return self.state is EngineState.READY and self.timeouts > 0

    def record(self, probe: Probe, *, bytes_arrived: bool) -> EngineState:
        """The state after one check. ``bytes_arrived``: bytes of any answer arrived during the check."""
        if probe is Probe.TIMED_OUT and self.state is EngineState.READY:
            self.timeouts = 0 if bytes_arrived else self.timeouts + 1
            if self.timeouts < TIMEOUTS_TO_FAIL:
                return self.state
        else:
            self.timeouts = 0
        self.state = EngineState.READY if probe is Probe.HEALTHY else EngineState.FAILED
        return self.state
