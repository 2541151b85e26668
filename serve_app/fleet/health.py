"""What a look at an external upstream says of it. A busy server answers late: that alone is no failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from serve_app.fleet.members import EngineState

SILENT_LOOKS = 3
"""So many looks in a row without an answer, and not a byte of any other answer meanwhile, are a failure. A
server that computes on its event loop is silent for as long as a step takes, and answers then."""


class Look(Enum):
    WELL = "well"
    UNWELL = "unwell"
    """It says so, or what it answers is no HTTP."""
    NOBODY = "nobody"
    """The connection was refused."""
    SILENT = "silent"
    """No answer in time."""


@dataclass(slots=True)
class Health:
    """One upstream's, over time."""

    state: EngineState = EngineState.WARMING
    silent_looks: int = 0

    @property
    def is_doubtful(self) -> bool:
        """It serves, but did not answer: look again soon."""
        return self.state is EngineState.READY and self.silent_looks > 0

    def saw(self, look: Look, *, heard: bool) -> EngineState:
        """What a look makes of it. ``heard``: bytes of some answer came while it lasted."""
        if look is Look.SILENT and self.state is EngineState.READY:
            self.silent_looks = 0 if heard else self.silent_looks + 1
            if self.silent_looks < SILENT_LOOKS:
                return self.state
        else:
            self.silent_looks = 0
        self.state = EngineState.READY if look is Look.WELL else EngineState.FAILED
        return self.state
