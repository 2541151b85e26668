"""One simulated engine replica.

It prefills prompts one after the other. The streams that it decodes share its steps: each stream is slower
the more streams there are, and half as fast while a prompt is prefilled.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from serve_app.autoscaling import ReplicaLoad
from serve_app.smoothing import SMOOTHING


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """``decode_tokens_per_s`` is the speed of a lone stream; each other stream in the batch makes a step
    longer by the share ``slowdown``."""

    slots: int = 16
    prefill_tokens_per_s: float = 8000.0
    decode_tokens_per_s: float = 30.0
    slowdown: float = 0.03
    start_s: float = 60.0

    def tokens_per_s(self, batch: int, *, prefills: bool) -> float:
        """The speed of each stream."""
        alone = self.decode_tokens_per_s * (0.5 if prefills else 1.0)
        return alone / (1.0 + self.slowdown * (batch - 1))


class State(Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True, eq=False)
class Prefills:
    """The prompts at one replica, one after the other. ``queued`` holds (index of the request, tokens)."""

    tokens_per_s: float
    current: int | None = None
    ends_s: float = 0.0
    queued: deque[tuple[int, int]] = field(default_factory=deque)
    queued_tokens: int = 0

    @property
    def requests(self) -> int:
        return len(self.queued) + (self.current is not None)

    def unprefilled(self, now: float) -> float:
        """Prompt tokens that are queued or not yet prefilled."""
        current_s = max(0.0, self.ends_s - now) if self.current is not None else 0.0
        return self.queued_tokens + current_s * self.tokens_per_s

    def add(self, index: int, tokens: int, now: float) -> None:
        self.queued.append((index, tokens))
        self.queued_tokens += tokens
        self._begin(now)

    def _begin(self, now: float) -> None:
        if self.current is None and self.queued:
            self.current, tokens = self.queued.popleft()
            self.queued_tokens -= tokens
            self.ends_s = now + tokens / self.tokens_per_s

    def ended(self, now: float) -> int | None:
        """The request whose prefill has ended by ``now``, if any; the next prefill begins."""
        if self.current is None or self.ends_s > now + 1e-9:
            return None
        index, self.current = self.current, None
        self._begin(now)
        return index


@dataclass(slots=True, eq=False)
class Replica:
    """``progress`` is how many tokens a stream would have that has decoded from the start; ``decoding`` holds
    (progress at the stream's end, index of the request)."""

    model: ReplicaModel
    ordered_s: float
    state: State = State.STARTING
    version: int = 0
    updated_s: float = 0.0
    progress: float = 0.0
    decoding: list[tuple[float, int]] = field(default_factory=list)
    service_s: float | None = None
    itl_s: float | None = None
    prefills: Prefills = field(init=False)

    def __post_init__(self) -> None:
        self.prefills = Prefills(self.model.prefill_tokens_per_s)

    @property
    def occupied(self) -> int:
        return len(self.decoding) + self.prefills.requests

    @property
    def has_room(self) -> bool:
        return self.state is State.READY and self.occupied < self.model.slots

    def take(self, index: int, tokens: int, now: float) -> None:
        self.advance(now)
        self.prefills.add(index, tokens, now)

    def advance(self, now: float) -> None:
        if self.decoding:
            self.progress += (now - self.updated_s) * self._rate()
        self.updated_s = now

    def _rate(self) -> float:
        return self.model.tokens_per_s(len(self.decoding), prefills=self.prefills.current is not None)

    def next_event_s(self) -> float | None:
        """When the next prompt or stream ends if no request comes; ``None`` without any."""
        times = []
        if self.prefills.current is not None:
            times.append(self.prefills.ends_s)
        if self.decoding:
            left = self.decoding[0][0] - self.progress
            times.append(self.updated_s + max(0.0, left) / self._rate())
        return min(times, default=None)

    def decode(self, index: int, tokens: int) -> None:
        heapq.heappush(self.decoding, (self.progress + tokens, index))

    def ended(self) -> int | None:
        """A request whose last token has come, if any."""
        if self.decoding and self.decoding[0][0] <= self.progress + 1e-6:
            return heapq.heappop(self.decoding)[1]
        return None

    def measure(self, service_s: float, itl_s: float | None) -> None:
        self.service_s = _mean(self.service_s, service_s)
        if itl_s is not None:
            self.itl_s = _mean(self.itl_s, itl_s)

    def load(self, now: float) -> ReplicaLoad:
        """What the replica would report."""
        prefilling = self.prefills.current is not None
        return ReplicaLoad(
            running=len(self.decoding) + prefilling,
            waiting=len(self.prefills.queued),
            waiting_tokens=self.prefills.unprefilled(now),
            capacity=self.model.slots,
            prefill_tokens_per_s=self.model.prefill_tokens_per_s,
            service_s=self.service_s,
            itl_s=self.itl_s if self.decoding else None,
        )


def _mean(known: float | None, sample: float) -> float:
    return sample if known is None else known + SMOOTHING * (sample - known)
