"""How many gateways: at the start by the token rate that the engines' GPUs are expected to make, then by how
late the gateways' event loops are. Pure policy, no clock.

A gateway is one event loop on one core. If its timers come late and it uses that core, tokens wait in it;
with another gateway each has fewer streams. If they come late and it does *not* use the core, something else
has the machine, and another gateway would only take more of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TOKENS_PER_S_OF_A_GPU = 5_000
"""Output tokens of a full engine: an 8 × H100 node makes 30,000 to 60,000 a second with models of 8 to 70
billion parameters."""

TOKENS_PER_S_OF_A_GATEWAY = 6_000
"""Three quarters of what one core relays (8,000 on the slow cores of docs/benchmarks.md)."""

GROWTH = 2
"""Unless a setting says otherwise, there may be this many times the expected number of gateways."""

OWN_WORK = 0.5
"""Share of a core from which on a late loop is late by its own work."""

TARGET = 0.6
"""Share of a core that each gateway should use after a change."""

LATE_FOR_S = 10.0
"""So long the loops must be late before a gateway is added. It takes seconds to start one, and a burst of
requests is over by then."""

SPARE_FOR_S = 600.0
"""So long one gateway fewer must be enough before one is stopped; it then drains, which takes as long as its
longest answer."""


def gateways_for(gpus: int) -> int:
    """Gateways for the tokens of so many GPUs; at least one."""
    return max(1, math.ceil(gpus * TOKENS_PER_S_OF_A_GPU / TOKENS_PER_S_OF_A_GATEWAY))


@dataclass(frozen=True, slots=True)
class GatewayPace:
    """One gateway, lately: ``lag_s`` is how late its event loop's timers came on average, ``cpu`` the share
    of one core that its process used."""

    lag_s: float = 0.0
    cpu: float = 0.0


class GatewayScaler:
    """Follows one fleet of gateways. Times are monotonic seconds."""

    def __init__(self, fewest: int, most: int, max_lag_s: float) -> None:
        self._fewest = fewest
        self._most = most
        self._max_lag_s = max_lag_s
        self._late_since: float | None = None
        self._spare_since: float | None = None

    def decide(self, paces: Sequence[GatewayPace], wanted: int, now: float) -> int:
        """How many gateways there should be. ``paces``: of those that run and have reported; ``wanted``: how
        many were last asked for. Nothing changes while some of them still start or stop."""
        bounded = min(max(wanted, self._fewest), self._most)
        if bounded != wanted or len(paces) != wanted:
            self._late_since = self._spare_since = None
            return bounded
        needed = max(1, math.ceil(sum(each.cpu for each in paces) / TARGET))
        late = self._are_late(paces)
        self._late_since = _since(self._late_since, late, now)
        self._spare_since = _since(self._spare_since, not late and needed < wanted, now)
        if self._late_since is not None and now - self._late_since >= LATE_FOR_S:
            wanted = max(wanted + 1, needed)
        elif self._spare_since is not None and now - self._spare_since >= SPARE_FOR_S:
            wanted -= 1
        else:
            return wanted
        self._late_since = self._spare_since = None
        return min(max(wanted, self._fewest), self._most)

    def _are_late(self, paces: Sequence[GatewayPace]) -> bool:
        """Whether the gateways are late by their own work, on average: one that is late alone has the longest
        streams, which another gateway would not take from it."""
        lag_s = sum(each.lag_s for each in paces) / len(paces)
        cpu = sum(each.cpu for each in paces) / len(paces)
        return lag_s > self._max_lag_s and cpu >= OWN_WORK


def _since(began: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if began is None else began
