"""Slots, the queue for them, and the time per token."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace
from typing import Any, Protocol

from sim_engine.metrics import Counters, Stats
from sim_engine.prefill import Prefilled, PrefillQueue
from sim_engine.prefix_cache import PrefixCache
from sim_engine.settings import SimSettings
from sim_engine.wheel import Wheel


class Scheduled(Prefilled, Protocol):
    """What the scheduler needs of a request: it queues, runs, and ends."""

    ids: list[int]
    """The tokens that it has generated."""


class Scheduler:
    """Slots and the requests that wait for one."""

    def __init__(self, settings: SimSettings) -> None:
        self.wheel = Wheel()
        self.counters = Counters()
        self._settings = settings
        self._cache = PrefixCache(settings.cache_tokens)
        self._prefills = PrefillQueue(settings, self._cache, self.counters, self.wheel)
        self._waiting: deque[Scheduled] = deque()
        self._running: set[Scheduled] = set()
        self._taken = 0
        self._changed = asyncio.Event()

    def stats(self, **more: Any) -> Stats:
        return Stats(**vars(self.counters), running=self._taken, waiting=len(self._waiting), **more)

    async def change(self) -> None:
        """Wait until a request comes, goes or gets a slot."""
        await self._changed.wait()

    def note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def itl_s(self) -> float:
        share = max(0, self._taken - 1) / self._settings.slots
        return self._settings.itl_ms / 1000 * (1 + self._settings.itl_growth * share)

    def set_pace(self, itl_ms: float) -> None:
        """From each answer's next token on."""
        self._settings = replace(self._settings, itl_ms=itl_ms)

    def enqueue(self, answer: Scheduled) -> None:
        self._waiting.append(answer)
        self._admit()

    def finish(self, answer: Scheduled) -> None:
        self.counters.finished += 1
        self.release(answer)

    def abort(self, answer: Scheduled) -> None:
        """The client has left."""
        self.counters.aborted += 1
        self.release(answer)

    def release(self, answer: Scheduled) -> None:
        """Free the slots or the place in the queue that the answer holds."""
        answer.over = True
        if answer in self._running:
            self._running.remove(answer)
            self._taken -= answer.request.slots
            self.counters.generated_tokens += len(answer.ids)
            if answer.ids:
                self._cache.keep(answer.request.prompt + answer.ids, answer.request.salt)
        elif answer in self._waiting:
            self._waiting.remove(answer)
        asyncio.get_running_loop().call_soon(self._admit)
        self.note_change()

    def _admit(self) -> None:
        while self._waiting and self._taken + self._waiting[0].request.slots <= self._settings.slots:
            answer = self._waiting.popleft()
            self._taken += answer.request.slots
            answer.admitted_s = time.monotonic()
            self._running.add(answer)
            self._prefills.add(answer)
        self.note_change()
        self._prefills.run()
