"""When to send a request to a second member because the first one is slow to begin (Dean & Barroso, "The Tail
at Scale", 2013)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from serve_app.latency import percentile

WINDOW = 256
ENOUGH = 32
REFRESH = 16
"""The quantile is computed once per this many samples, because over 256 samples it costs about 20 µs."""


@dataclass(slots=True)
class Hedge:
    """One model's hedging: at most ``share`` of its requests, each after the ``quantile`` of recent TTFTs.

    Unused share expires after ``WINDOW`` requests: hedges saved up on a quiet day must not double the load of
    a bad minute.
    """

    share: float
    quantile: float = 0.95
    _requests: int = 0
    _spent: float = 0.0
    _ttfts: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _seen: int = 0
    _after_s: float | None = None

    def begin(self) -> float | None:
        """Count a request. Returns how many seconds to wait for its first byte before hedging; ``None`` while
        too few samples exist."""
        self._requests += 1
        most_unused = max(1.0, self.share * WINDOW)
        self._spent = max(self._spent, self.share * self._requests - most_unused)
        return self._after_s

    def may_hedge(self) -> bool:
        """Whether one more hedge is within the share."""
        return self._spent + 1 <= self.share * self._requests

    def hedged(self) -> None:
        self._spent += 1

    def saw_first_byte(self, elapsed_s: float) -> None:
        self._ttfts.append(elapsed_s)
        self._seen += 1
        if len(self._ttfts) >= ENOUGH and self._seen % REFRESH == 0:
            self._after_s = percentile(sorted(self._ttfts), self.quantile)

    def saw_silence(self, elapsed_s: float) -> None:
        """No first byte came within ``elapsed_s``, and none will: another member was faster, or the client
        left. Without these samples the slow answers would be missing, and the quantile would sink with every
        hedge. A request given up before the hedging time says nothing and is not counted."""
        if self._after_s is not None and elapsed_s >= self._after_s:
            self.saw_first_byte(elapsed_s)
