"""Over which time something is counted: any 60 seconds, or a day or month of a calendar."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from serve_app.quotas.limits import UTC, Bound

MINUTE_S = 60.0
SLOT_S = 0.25
"""What is used within one slot leaves the minute together, at the slot's end: less than half a percent late,
never early."""

MONTHS = frozenset({Bound.TOKENS_MONTH, Bound.MONEY_MONTH})


class SlidingMinute:
    """What was used in the last 60 seconds. All times are seconds of one clock that never steps."""

    def __init__(self) -> None:
        self._slots: deque[list[int]] = deque()
        self._sum = 0

    def add(self, at: float, amount: int) -> None:
        """``at``: when it was used. Late use may be reported early, so slots arrive almost in order."""
        slot = int(at / SLOT_S)
        self._sum += amount
        behind: list[list[int]] = []
        while self._slots and self._slots[-1][0] > slot:
            behind.append(self._slots.pop())
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1][1] += amount
        else:
            self._slots.append([slot, amount])
        self._slots.extend(reversed(behind))

    def used(self, now: float) -> int:
        gone = now - MINUTE_S
        slots = self._slots
        while slots and (slots[0][0] + 1) * SLOT_S <= gone:
            self._sum -= slots.popleft()[1]
        return self._sum

    def seconds_until(self, amount: int, now: float) -> float:
        """Until so much of what was used has left; a whole minute if there is less."""
        left = amount
        for slot, used in self._slots:
            left -= used
            if left <= 0:
                return max(0.0, (slot + 1) * SLOT_S + MINUTE_S - now)
        return MINUTE_S

    def slots(self) -> list[tuple[float, int]]:
        """When each slot began, and what was used in it."""
        return [(slot * SLOT_S, amount) for slot, amount in self._slots]


@dataclass(frozen=True, slots=True)
class Span:
    """A day or a month. ``label`` names it in its calendar (``2026-10-25``, ``2026-10``); the rest is Unix
    seconds."""

    label: str
    begins: float
    ends: float


class Calendar:
    """Days and months of time zones. A day with a clock change has 23 or 25 hours."""

    def __init__(self) -> None:
        self._newest: dict[tuple[bool, str], Span] = {}

    def span(self, bound: Bound, zone: str, unix: float) -> Span:
        """The day or month, as the bound has it, that holds a moment (Unix seconds)."""
        is_month = bound in MONTHS
        known = self._newest.get((is_month, zone))
        if known is None or not known.begins <= unix < known.ends:
            known = self._newest[is_month, zone] = _span(is_month, zone, unix)
        return known


def _span(is_month: bool, zone: str, unix: float) -> Span:
    try:
        info = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # its name was checked; the machine's zones may have changed
        info = ZoneInfo(UTC)
    local = datetime.fromtimestamp(unix, info)
    if is_month:
        begin = datetime(local.year, local.month, 1, tzinfo=info)
        end = datetime(local.year + local.month // 12, local.month % 12 + 1, 1, tzinfo=info)
        return Span(f"{local:%Y-%m}", begin.timestamp(), end.timestamp())
    begin = datetime(local.year, local.month, local.day, tzinfo=info)
    after = datetime.fromordinal(local.toordinal() + 1)
    end = datetime(after.year, after.month, after.day, tzinfo=info)
    return Span(f"{local:%Y-%m-%d}", begin.timestamp(), end.timestamp())
