"""Growth of counters that many processes keep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping


class Increments:
    """By how much counters grew since the last look, over sources that come, go and start anew."""

    def __init__(self) -> None:
        self._known: dict[Hashable, float] = {}

    def since_last(self, totals: Mapping[Hashable, float]) -> float:
        """The growth of all of them. A counter that fell began anew; a source not seen before counts whole,
        one that is gone no more."""
        grown = 0.0
        for source, total in totals.items():
            known = self._known.get(source, 0.0)
            grown += total - known if total >= known else total
        self._known = dict(totals)
        return grown
