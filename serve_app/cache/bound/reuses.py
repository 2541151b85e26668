"""Which entries answered which texts lately: for audits, and for reports that name no text."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

MOST_PAIRS = 4096
"""Pairs of an entry and a text that are remembered: about 1 MB with questions of usual length."""

AUDIT_STEP = 4
"""A pair may be audited at its first reuse, and again whenever its number of reuses has grown by this
factor."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Reuses of one entry for one text: the score, and how many there were."""

    text: str
    score: float
    count: int = 1


@dataclass(slots=True)
class RecentReuses:
    """A bounded record, in order of the last reuse."""

    capacity: int = MOST_PAIRS
    _pairs: OrderedDict[tuple[UUID, str], Reuse] = field(default_factory=OrderedDict)
    _last: dict[UUID, str] = field(default_factory=dict)

    def add(self, entry_id: UUID, text: str, score: float) -> None:
        before = self._pairs.pop((entry_id, text), None)
        self._pairs[entry_id, text] = Reuse(text, score, 1 if before is None else before.count + 1)
        self._last[entry_id] = text
        if len(self._pairs) > self.capacity:
            (oldest, its_text), _ = self._pairs.popitem(last=False)
            if self._last.get(oldest) == its_text:
                del self._last[oldest]

    def get(self, entry_id: UUID, text: str | None = None) -> Reuse | None:
        """The reuses for this text, or for the text that the entry answered last."""
        text = self._last.get(entry_id) if text is None else text
        return None if text is None else self._pairs.get((entry_id, text))

    def audit_is_due(self, entry_id: UUID, text: str) -> bool:
        """Whether the next reuse of a pair may be audited: its 1st, 4th, 16th, 64th and so on.

        An audit gives the text an entry of its own, which answers it from then on: audits at every reuse
        would end the semantic hits of the very texts that are asked often, and teach little, because one
        pair is either right or wrong."""
        reuse = self.get(entry_id, text)
        number = 1 if reuse is None else reuse.count + 1
        while number > 1 and number % AUDIT_STEP == 0:
            number //= AUDIT_STEP
        return number == 1
