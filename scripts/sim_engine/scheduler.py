"""Slots, the order of prefills, and the time per token."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any, Protocol

from sim_engine.metrics import Counters, Stats
from sim_engine.prefix_cache import PrefixCache
from sim_engine.requests import Generation
from sim_engine.settings import SimSettings
from sim_engine.wheel import Wheel


class Scheduled(Protocol):
    """What the scheduler needs of a request: it queues, runs, and ends."""

    request: Generation
    ids: list[int]
    """The tokens that it has generated."""
    admitted_s: float
    over: bool
    cached_tokens: int
    """How many tokens of its prompt the prefix cache had, known once its prefill begins."""

    def begin(self, due_s: float) -> None:
        """The prompt is prefilled; the first token is due at ``due_s`` (``time.monotonic``)."""


class Scheduler:
    """Slots, the prefill queue and the prefix cache."""

    def __init__(self, settings: SimSettings) -> None:
        self.wheel = Wheel()
        self.counters = Counters()
        self._settings = settings
        self._cache = PrefixCache(settings.cache_tokens)
        self._waiting: deque[Scheduled] = deque()
        self._running: set[Scheduled] = set()
        self._taken = 0
        self._to_prefill: deque[Scheduled] = deque()
        self._prefilling: Scheduled | None = None
        self._prefilled_s = 0.0
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
            self._to_prefill.append(answer)
        self.note_change()
        self._prefill()

    def _prefill(self) -> None:
        """One prompt after the other. Ends are computed, so a late timer delays no later prompt."""
        while self._to_prefill and self._prefilling is None:
            answer = self._to_prefill.popleft()
            if answer.over:
                continue
            start = max(self._prefilled_s, answer.admitted_s)
            self._prefilled_s = start + self._prefill_s(answer)
            if self._prefilled_s > time.monotonic():
                self._prefilling = answer
                self.wheel.at(self._prefilled_s, self._end_prefill)
            else:
                self._begin(answer)

    def _prefill_s(self, answer: Scheduled) -> float:
        prompt = answer.request.prompt
        answer.cached_tokens = cached = self._cache.cached_tokens(prompt, answer.request.salt)
        self.counters.prompt_tokens += len(prompt)
        self.counters.cached_tokens += cached
        return (len(prompt) - cached) * self._settings.prefill_ms_per_1k / 1e6

    def _end_prefill(self) -> None:
        answer, self._prefilling = self._prefilling, None
        if answer is not None and not answer.over:
            self._begin(answer)
        self._prefill()

    def _begin(self, answer: Scheduled) -> None:
        self._cache.keep(answer.request.prompt, answer.request.salt)
        answer.begin(self._prefilled_s + self._settings.first_token_ms / 1000)
