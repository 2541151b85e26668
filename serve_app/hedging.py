"""When a second member is asked because the first one is slow to begin (Dean & Barroso, "The Tail at
Scale", 2013)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from serve_app.latency import percentile

WINDOW = 256
ENOUGH = 32
REFRESH = 16
"""A quantile over 256 samples costs about 20 µs: it is made anew for every sixteenth."""


@dataclass(slots=True)
class Hedge:
    """One model's hedging: at most ``share`` of its requests, after its own ``quantile`` of TTFT.

    A share that was not used lapses after ``WINDOW`` requests: what a quiet day left over must not double
    the load of a bad minute.
    """

    share: float
    quantile: float = 0.95
    _requests: int = 0
    _spent: float = 0.0
    _ttfts: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _seen: int = 0
    _after_s: float | None = None

    def begin(self) -> float | None:
        """Count a request; returns how long to wait for its first byte before hedging, in seconds
        (``None``: too little is known yet)."""
        self._requests += 1
        most_unused = max(1.0, self.share * WINDOW)
        self._spent = max(self._spent, self.share * self._requests - most_unused)
        return self._after_s

    def may_hedge(self) -> bool:
        """Whether one more hedge stays within the share."""
        return self._spent + 1 <= self.share * self._requests

    def hedged(self) -> None:
        self._spent += 1

    def saw_first_byte(self, elapsed_s: float) -> None:
        self._ttfts.append(elapsed_s)
        self._seen += 1
        if len(self._ttfts) >= ENOUGH and self._seen % REFRESH == 0:
            self._after_s = percentile(sorted(self._ttfts), self.quantile)

    def saw_silence(self, elapsed_s: float) -> None:
        """No first byte came in ``elapsed_s``, and none will: another member was faster, or nobody waits any
        longer. Left out, the slow ones would be missing where they are many, and the quantile would sink with
        every hedge; one that was given up earlier says nothing."""
        if self._after_s is not None and elapsed_s >= self._after_s:
            self.saw_first_byte(elapsed_s)
