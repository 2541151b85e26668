"""How much of an application's limit each gateway may use.

Every gateway tells all others once a second how many requests it answers and has refused. From the same
reports each computes the same shares, so no owner is asked: a gateway gets what it needs, and an equal part
of what is not needed; where there is too little, gateways that ask for less than an equal part get all of it,
and the others share the rest equally (max-min fairness). A share grows one round after it could, when the
others have read the report that makes theirs smaller.
"""

from __future__ import annotations

from collections.abc import Mapping


def shares(most: int, demands: Mapping[str, int]) -> dict[str, int]:
    """``most`` by gateway. They add up to ``most``; where that is less than there are gateways, each has one.
    All gateways give what is left over to the same ones: the first by name."""
    count = len(demands)
    if most <= count:
        return dict.fromkeys(demands, 1)
    given = dict.fromkeys(demands, 0)
    left, wanting = most, {name: need for name, need in demands.items() if need > 0}
    while wanting and left >= len(wanting):
        each = left // len(wanting)
        few = {name: need for name, need in wanting.items() if need <= each}
        for name, need in (few or dict.fromkeys(wanting, each)).items():
            given[name] = need
            left -= need
            del wanting[name]
        if not few:
            break
    order = sorted(demands)
    for place, name in enumerate(order):
        given[name] += left // count + (place < left % count)
    return _one_each(given)


def _one_each(given: dict[str, int]) -> dict[str, int]:
    """A gateway without any could never begin to ask for more."""
    for name, share in given.items():
        if not share:
            richest = max(given, key=lambda other: (given[other], other))
            given[richest] -= 1
            given[name] = 1
    return given


class Share:
    """One gateway's share of every limit. ``expected``: how many gateways there are, until they are known."""

    def __init__(self, gateway: str, expected: int = 1) -> None:
        self.gateway = gateway
        self._expected = expected
        self._now: Mapping[str, int] | None = None
        self._before: Mapping[str, int] | None = None
        self._known: dict[int, int] = {}

    @property
    def gateways(self) -> int:
        """How many share the limits."""
        rounds = [len(each) for each in (self._before, self._now) if each is not None]
        return max(rounds, default=self._expected)

    def learn(self, demands: Mapping[str, int]) -> None:
        """A round's reports, this gateway's own among them."""
        self._before, self._now = self._now, dict(demands)
        self._known = {}

    def of(self, most: int) -> int:
        """How much of a limit of ``most`` this gateway may use."""
        if self.gateways == 1 or not most:
            return most
        share = self._known.get(most)
        if share is None:
            share = self._known[most] = self._computed(most)
        return share

    def _computed(self, most: int) -> int:
        if self._now is None:
            return max(1, most // self._expected)
        rounds = [each for each in (self._before, self._now) if each is not None]
        return min(shares(most, each).get(self.gateway, 1) for each in rounds)
