"""The mean of recent samples, as every measured speed of this application is smoothed."""

from __future__ import annotations

SMOOTHING = 0.1
"""Weight of the newest sample: about the last twenty count."""


def mean(known: float, sample: float, samples: int) -> float:
    """The mean after one more sample than ``samples``: a plain mean of the first ones, so that none of them
    weighs more than it should."""
    return known + max(SMOOTHING, 1 / (samples + 1)) * (sample - known)
