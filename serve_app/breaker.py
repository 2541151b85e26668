"""A circuit breaker as a value without a clock: callers pass ``now`` (seconds, monotonic)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Breaker:
    """Opens after ``threshold`` failures in a row, then allows one trial every ``cooldown_s``.

    CLOSED --threshold failures--> OPEN --cooldown_s--> one trial --success--> CLOSED
                                     ^---------------------failure----'

    Every trial must end in ``succeeded`` or ``failed``. A caller checks ``is_open`` before the call, and lets
    a trial run to its end even if its result is no longer needed.
    """

    threshold: int
    cooldown_s: float
    failures: int = 0
    retry_at: float = 0.0

    def allows(self, now: float) -> bool:
        """Whether a call may be made; an open breaker allows one trial per cool-down."""
        if self.failures < self.threshold:
            return True
        if now < self.retry_at:
            return False
        self.retry_at = now + self.cooldown_s
        return True

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failures >= self.threshold:
            self.retry_at = now + self.cooldown_s

    @property
    def is_open(self) -> bool:
        return self.failures >= self.threshold
