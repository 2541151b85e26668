"""How long a request that waits in the queue will have to wait."""

from __future__ import annotations

import math
import time
from statistics import mean

from deployments.gateway.placement.room import Room
from serve_app.admission import DrainRate
from serve_app.fleet import Dispatch


class WaitEstimate:
    """One model's, from the rate at which room becomes free. Times are in seconds."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._drain = DrainRate()

    def waiting(self) -> None:
        """A request begins to wait: from now on the rate can be measured."""
        self._drain.waits(time.monotonic())

    def departed(self, dispatch: Dispatch, now: float, *, queue_is_empty: bool) -> None:
        if dispatch.first_byte_at is not None:  # a failed attempt does not show how fast answers end
            self._drain.departed(now, queue_is_empty=queue_is_empty, slots=dispatch.slots)

    def seconds(self, ahead: float) -> float | None:
        """The time until there is room for ``ahead`` sequences; ``None`` while the rate is not known."""
        rate = self._rate()
        return None if rate is None else ahead / rate

    def retry_after_s(self, ahead: float) -> int:
        """The same for ``Retry-After``, in whole seconds: at least one."""
        return max(1, math.ceil(self.seconds(ahead) or 1))

    def _rate(self) -> float | None:
        """Sequences per second: as measured; else by Little's law, from what this gateway has in flight and
        how long a request takes where that is known."""
        now = time.monotonic()
        measured = self._drain.per_second(now)
        if measured is not None:
            return measured
        members = self._room.candidates()
        known = [member.pace.service_s for member in members if member.pace.ends]
        return sum(member.in_flight for member in members) / mean(known) or None if known else None
