"""A clock that follows the machine's, but never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Unix seconds. When the machine's clock is set back, this one goes on from where it was, as fast as time
    passes: a key that has expired stays expired, and none lives longer. When that one is set forward, this
    one follows."""

    def __init__(
        self, wall: Callable[[], float] = time.time, passed: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._passed = wall, passed
        self._ahead = wall() - passed()

    def __call__(self) -> float:
        passed, wall = self._passed(), self._wall()
        self._ahead = max(self._ahead, wall - passed)
        return self._ahead + passed
