"""Logarithmic buckets of durations: the middle of one is within 1 % of whatever it holds."""

from __future__ import annotations

from math import log

GROWTH = 1.02
"""Each bucket ends at this times its beginning."""

PER_LOG = 1 / log(GROWTH)
"""The bucket of a number of microseconds, 1 or more, is the whole part of its logarithm times this."""


def middle_ms(bucket: int) -> float:
    """Milliseconds."""
    middle: float = GROWTH ** (bucket + 0.5) / 1000
    return middle
