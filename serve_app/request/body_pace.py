"""When the next part of a request's body is due."""

from __future__ import annotations

from dataclasses import dataclass

GRACE_S = 5.0
"""A body may pause this long, also before its first byte: lost packets are resent within that time."""


@dataclass(frozen=True, slots=True)
class BodyPace:
    """``timeout_s`` for the whole body; ``min_bytes_per_s`` on average, after :data:`GRACE_S`."""

    timeout_s: float
    min_bytes_per_s: float

    def due_s(self, received_bytes: int) -> float:
        """Seconds after the start by which more than ``received_bytes`` must have arrived."""
        return min(self.timeout_s, GRACE_S + received_bytes / self.min_bytes_per_s)
