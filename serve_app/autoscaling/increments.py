"""Growth of counters that many processes keep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

MOST_SOURCES = 1000
"""Sources that are remembered, the most recent ones: a source is a process that may never report again."""


class Increments:
    """The growth of counters since the last call, over sources that appear, vanish, return and restart."""

    def __init__(self) -> None:
        self._known: dict[Hashable, float] = {}

    def since_last(self, totals: Mapping[Hashable, float]) -> float:
        """The growth of all counters together.

        A counter that fell has restarted from 0. A source that was not seen before adds nothing yet: after
        the autoscaler's own process was replaced, the time over which a first total grew is unknown. A source
        that misses some reports is remembered.
        """
        grown = 0.0
        for source, total in totals.items():
            known = self._known.pop(source, total)
            grown += total - known if total >= known else total
            self._known[source] = total  # now the newest
        for source in list(self._known)[:-MOST_SOURCES]:
            del self._known[source]
        return grown
