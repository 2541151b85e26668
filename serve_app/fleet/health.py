"""The state of an external upstream, from its health checks. A late answer alone is no failure: the server
may be busy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from serve_app.fleet.members import EngineState

SILENT_LOOKS = 3
"""This many health checks in a row without an answer, and without a byte of any other answer meanwhile, count
as a failure. A server that computes on its event loop is silent while a step runs, and answers afterwards."""


class Look(Enum):
    WELL = "well"
    UNWELL = "unwell"
    """It reports itself unhealthy, or its answer is not HTTP."""
    NOBODY = "nobody"
    """The connection was refused."""
    SILENT = "silent"
    """No answer in time."""


@dataclass(slots=True)
class Health:
    """The health of one upstream, over time."""

    state: EngineState = EngineState.WARMING
    silent_looks: int = 0

    @property
    def is_doubtful(self) -> bool:
        """It was healthy, but did not answer the last check: check again soon."""
        return self.state is EngineState.READY and self.silent_looks > 0

    def saw(self, look: Look, *, heard: bool) -> EngineState:
        """The state after one check. ``heard``: bytes of some answer arrived while the check lasted."""
        if look is Look.SILENT and self.state is EngineState.READY:
            self.silent_looks = 0 if heard else self.silent_looks + 1
            if self.silent_looks < SILENT_LOOKS:
                return self.state
        else:
            self.silent_looks = 0
        self.state = EngineState.READY if look is Look.WELL else EngineState.FAILED
        return self.state
