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

SMOOTHING = 0.1
"""Weight of a new measurement, as in ``serve_app.fleet.pace``."""


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
class Replica:
    """``progress`` is how many tokens a stream would have that has decoded from the start; ``decoding`` holds
    (progress at the stream's end, index of the request)."""

    model: ReplicaModel
    ordered_s: float
    state: State = State.STARTING
    version: int = 0
    updated_s: float = 0.0
    progress: float = 0.0
    prefilling: int | None = None
    prefilled_s: float = 0.0
    prompts: deque[tuple[int, int]] = field(default_factory=deque)
    prompt_tokens: int = 0
    decoding: list[tuple[float, int]] = field(default_factory=list)
    service_s: float | None = None
    itl_s: float | None = None

    @property
    def occupied(self) -> int:
        return len(self.decoding) + len(self.prompts) + (self.prefilling is not None)

    @property
    def has_room(self) -> bool:
        return self.state is State.READY and self.occupied < self.model.slots

    def unprefilled(self, now: float) -> float:
        """Prompt tokens that are queued or not yet prefilled."""
        current_s = max(0.0, self.prefilled_s - now) if self.prefilling is not None else 0.0
        return self.prompt_tokens + current_s * self.model.prefill_tokens_per_s

    def take(self, index: int, tokens: int, now: float) -> None:
        self.advance(now)
        self.prompts.append((index, tokens))
        self.prompt_tokens += tokens
        self._begin_prefill(now)

    def advance(self, now: float) -> None:
        if self.decoding:
            self.progress += (now - self.updated_s) * self._rate()
        self.updated_s = now

    def _rate(self) -> float:
        return self.model.tokens_per_s(len(self.decoding), prefills=self.prefilling is not None)

    def _begin_prefill(self, now: float) -> None:
        if self.prefilling is None and self.prompts:
            self.prefilling, tokens = self.prompts.popleft()
            self.prompt_tokens -= tokens
            self.prefilled_s = now + tokens / self.model.prefill_tokens_per_s

    def next_event_s(self) -> float | None:
        """When the next prompt or stream ends if no request comes; ``None`` without any."""
        times = []
        if self.prefilling is not None:
            times.append(self.prefilled_s)
        if self.decoding:
            left = self.decoding[0][0] - self.progress
            times.append(self.updated_s + max(0.0, left) / self._rate())
        return min(times, default=None)

    def first_token(self, now: float) -> int | None:
        """The request whose prefill has ended by ``now``, if any; the next prefill begins."""
        if self.prefilling is None or self.prefilled_s > now + 1e-9:
            return None
        index, self.prefilling = self.prefilling, None
        self._begin_prefill(now)
        return index

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
        prefilling = self.prefilling is not None
        return ReplicaLoad(
            running=len(self.decoding) + prefilling,
            waiting=len(self.prompts),
            waiting_tokens=self.unprefilled(now),
            capacity=self.model.slots,
            prefill_tokens_per_s=self.model.prefill_tokens_per_s,
            service_s=self.service_s,
            itl_s=self.itl_s if self.decoding else None,
        )


def _mean(known: float | None, sample: float) -> float:
    return sample if known is None else known + SMOOTHING * (sample - known)
