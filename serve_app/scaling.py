"""How many replicas a load needs."""

from __future__ import annotations

import math
from collections.abc import Iterable


def replicas_needed(
    running: Iterable[float], waiting: Iterable[float], target_ongoing_requests: float
) -> int:
    """Replicas so that each carries at most the target; bounds and delays are the autoscaler's."""
    total = sum(running) + sum(waiting)
    return max(1, math.ceil(total / target_ongoing_requests))
