"""Prompts on their way to the first token, one after the other."""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from sim_engine.metrics import Counters
from sim_engine.prefix_cache import PrefixCache
from sim_engine.requests import Generation
from sim_engine.settings import SimSettings
from sim_engine.wheel import Wheel


class Prefilled(Protocol):
    """What a prefill needs of a request."""

    request: Generation
    admitted_s: float
    over: bool
    cached_tokens: int
    """How many tokens of its prompt the prefix cache had, known once its prefill begins."""

    def begin(self, due_s: float) -> None:
        """The prompt is prefilled; the first token is due at ``due_s`` (``time.monotonic``)."""


class PrefillQueue:
    """Prefills one prompt after the other. Ends are computed, so a late timer delays no later prompt."""

    def __init__(self, settings: SimSettings, cache: PrefixCache, counters: Counters, wheel: Wheel) -> None:
        self._settings = settings
        self._cache = cache
        self._counters = counters
        self._wheel = wheel
        self._waiting: deque[Prefilled] = deque()
        self._current: Prefilled | None = None
        self._ends_s = 0.0

    def add(self, answer: Prefilled) -> None:
        """It has a slot. Call ``run`` when all that came at once are added."""
        self._waiting.append(answer)

    def run(self) -> None:
        while self._waiting and self._current is None:
            answer = self._waiting.popleft()
            if answer.over:
                continue
            start = max(self._ends_s, answer.admitted_s)
            self._ends_s = start + self._duration_s(answer)
            if self._ends_s > time.monotonic():
                self._current = answer
                self._wheel.at(self._ends_s, self._end)
            else:
                self._begin(answer)

    def _duration_s(self, answer: Prefilled) -> float:
        prompt = answer.request.prompt
        answer.cached_tokens = cached = self._cache.cached_tokens(prompt, answer.request.salt)
        self._counters.prompt_tokens += len(prompt)
        self._counters.cached_tokens += cached
        return (len(prompt) - cached) * self._settings.prefill_ms_per_1k / 1e6

    def _end(self) -> None:
        answer, self._current = self._current, None
        if answer is not None and not answer.over:
            self._begin(answer)
        self.run()

    def _begin(self, answer: Prefilled) -> None:
        self._cache.keep(answer.request.prompt, answer.request.salt)
        answer.begin(self._ends_s + self._settings.first_token_ms / 1000)
