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
    """One model's hedging: at most ``share`` of its requests, after its own ``quantile`` of TTFT."""

    share: float
    quantile: float = 0.95
    _requests: int = 0
    _hedges: int = 0
    _ttfts: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _seen: int = 0
    _after_s: float | None = None

    def begin(self) -> float | None:
        """Count a request; returns how long to wait for its first byte before hedging, in seconds
        (``None``: too little is known yet)."""
        self._requests += 1
        return self._after_s

    def may_hedge(self) -> bool:
        """Whether one more hedge stays within the share; counts it if so."""
        if self._hedges + 1 > self.share * self._requests:
            return False
        self._hedges += 1
        return True

    def saw_first_byte(self, elapsed_s: float) -> None:
        self._ttfts.append(elapsed_s)
        self._seen += 1
        if len(self._ttfts) >= ENOUGH and self._seen % REFRESH == 0:
            self._after_s = percentile(sorted(self._ttfts), self.quantile)
