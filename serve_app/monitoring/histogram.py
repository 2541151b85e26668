"""A histogram with logarithmic buckets: two of them merge exactly, and a percentile is right within 1 %."""

from __future__ import annotations

from math import inf, isfinite, log

from serve_app.buckets import PER_LOG, middle_ms


class Histogram:
    """Durations in milliseconds; none is below a microsecond. ``total_us`` is a whole number, so that taking
    away what was added leaves nothing behind."""

    __slots__ = ("buckets", "count", "total_us")

    def __init__(self, buckets: dict[int, int] | None = None, total_us: int = 0) -> None:
        self.buckets = {} if buckets is None else buckets
        self.count = sum(self.buckets.values())
        self.total_us = total_us

    def add(self, milliseconds: float) -> None:
        """What is no number counts nothing; a negative duration (a clock was set back) counts as the
        least."""
        microseconds = milliseconds * 1000
        if not 1 <= microseconds < inf:
            if not isfinite(microseconds):
                return
            microseconds = 1.0
        bucket, buckets = int(log(microseconds) * PER_LOG), self.buckets
        buckets[bucket] = buckets.get(bucket, 0) + 1
        self.count += 1
        self.total_us += int(microseconds)

    def merge(self, other: Histogram) -> None:
        buckets = self.buckets
        for bucket, number in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + number
        self.count += other.count
        self.total_us += other.total_us

    def take_away(self, other: Histogram) -> None:
        """The opposite of :meth:`merge`, for what was merged before."""
        buckets = self.buckets
        for bucket, number in other.buckets.items():
            left = buckets[bucket] - number
            if left:
                buckets[bucket] = left
            else:
                del buckets[bucket]
        self.count -= other.count
        self.total_us -= other.total_us

    @property
    def mean(self) -> float:
        """Milliseconds; 0 if it is empty."""
        return self.total_us / self.count / 1000 if self.count else 0.0

    def percentiles(self, *shares: float) -> list[float]:
        """Nearest-rank percentiles in milliseconds, for ascending shares in (0, 1]; zeros if it is empty."""
        if not self.count:
            return [0.0 for _ in shares]
        found: list[float] = []
        seen = 0
        wanted = iter(shares)
        share = next(wanted, None)
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            while share is not None and seen >= share * self.count:
                found.append(middle_ms(bucket))
                share = next(wanted, None)
        return found
