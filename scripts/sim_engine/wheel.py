"""Callbacks at their due times."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

TICK_S = 0.001
"""Callbacks that are due within one tick share a timer. Rounding errors of a stream do not add up."""


class Wheel:
    """Callbacks by due time (``time.monotonic``); one timer serves all of a tick."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, list[Callable[[], None]]] = {}
        self._ticks: list[int] = []  # a heap of the keys of `_due`
        self._timer: asyncio.TimerHandle | None = None

    def at(self, due_s: float, callback: Callable[[], None]) -> None:
        tick = int(due_s / TICK_S + 0.5)
        if tick in self._due:
            self._due[tick].append(callback)
            return
        self._due[tick] = [callback]
        heapq.heappush(self._ticks, tick)
        if self._ticks[0] == tick:
            self._arm()

    def stop(self) -> None:
        self._due.clear()
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._ticks[0] * TICK_S - time.monotonic(), self._fire)

    def _fire(self) -> None:
        now = time.monotonic() / TICK_S + 0.5  # loops wake in whole milliseconds, some a little early
        while self._ticks and self._ticks[0] <= now:
            for callback in self._due.pop(heapq.heappop(self._ticks)):
                callback()
        if self._ticks:
            self._arm()
