"""Growth of counters that many processes keep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

MOST_SOURCES = 1000
"""Of these the ones seen last are remembered; a source is a process that may never be heard of again."""


class Increments:
    """By how much counters grew since the last look, over sources that come, go, come back and start anew."""

    def __init__(self) -> None:
        self._known: dict[Hashable, float] = {}

    def since_last(self, totals: Mapping[Hashable, float]) -> float:
        """The growth of all of them.

        A counter that fell began anew. A source not seen before says nothing yet: whoever looks for the first
        time (the autoscaler's process was replaced) cannot know over what time its total came together. One
        that is silent for a while is remembered: no replica, no report.
        """
        grown = 0.0
        for source, total in totals.items():
            known = self._known.pop(source, total)
            grown += total - known if total >= known else total
            self._known[source] = total  # now the newest
        for source in list(self._known)[:-MOST_SOURCES]:
            del self._known[source]
        return grown
