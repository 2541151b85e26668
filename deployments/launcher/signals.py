"""Signals that ask the supervisor to stop."""

from __future__ import annotations

import signal
from types import FrameType


class StopSignals:
    """Counts the requests to stop. The first stops the run, the second skips all waiting."""

    def __init__(self) -> None:
        self.received: list[int] = []
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._note)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received.append(signum)

    @property
    def requested(self) -> bool:
        return bool(self.received)

    @property
    def hurried(self) -> bool:
        return len(self.received) > 1
