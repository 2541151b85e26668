"""How much of an application's limit each gateway may use.

Every gateway tells all others once a second how many requests it answers and has refused. From the same
reports each computes the same shares, so no owner is asked: a gateway gets what it needs, and an equal part
of what is not needed; where there is too little, gateways that ask for less than an equal part get all of it,
and the others share the rest equally (max-min fairness). A share grows one round after it could, when the
others have read the report that makes theirs smaller. Requests that run when it shrinks run on; until they
end, the others share what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


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


def room(most: int, demands: Mapping[str, int], running: Mapping[str, int]) -> dict[str, int]:
    """How many requests each gateway may run, where ``running`` says how many each does: its share, or what
    is left of it beside gateways that run more than theirs. That may be none."""
    given = shares(most, demands)
    beyond: dict[str, int] = {}
    while more := {
        name: running[name]
        for name, share in given.items()
        if name not in beyond and running.get(name, 0) > share
    }:
        beyond |= more
        rest = {name: demand for name, demand in demands.items() if name not in beyond}
        given |= _of_what_is_left(most - sum(beyond.values()), rest)
    return given


def _of_what_is_left(most: int, demands: Mapping[str, int]) -> dict[str, int]:
    if most > len(demands):
        return shares(most, demands)
    return {name: int(place < most) for place, name in enumerate(sorted(demands))}


def _one_each(given: dict[str, int]) -> dict[str, int]:
    """A gateway without any could never begin to ask for more."""
    for name, share in given.items():
        if not share:
            richest = max(given, key=lambda other: (given[other], other))
            given[richest] -= 1
            given[name] = 1
    return given


@dataclass(frozen=True, slots=True)
class Reports:
    """Of one round, by gateway: the requests that it answers and has refused, and those that it answers."""

    demands: Mapping[str, int]
    running: Mapping[str, int]


class Share:
    """One gateway's share of every limit. ``expected``: how many gateways there are, until they are known."""

    def __init__(self, gateway: str, expected: int = 1) -> None:
        self.gateway = gateway
        self._expected = expected
        self._rounds: tuple[Reports, ...] = ()  # the newest two
        self._shares: dict[int, int] = {}
        self._rooms: dict[int, int] = {}

    @property
    def gateways(self) -> int:
        """How many share the limits."""
        return max((len(each.demands) for each in self._rounds), default=self._expected)

    def learn(self, demands: Mapping[str, int], running: Mapping[str, int] | None = None) -> None:
        """A round's reports, this gateway's own among them."""
        self._rounds = (*self._rounds[-1:], Reports(dict(demands), dict(running or {})))
        self._shares, self._rooms = {}, {}

    def of(self, most: int) -> int:
        """How much of a limit of ``most`` this gateway may use."""
        return self._least(self._shares, most, lambda each: shares(most, each.demands))

    def room(self, most: int) -> int:
        """How many requests this gateway may run of the ``most`` that all may run together."""
        return self._least(self._rooms, most, lambda each: room(most, each.demands, each.running))

    def _least(self, known: dict[int, int], most: int, given: Callable[[Reports], Mapping[str, int]]) -> int:
        """What this gateway is given in each of the newest rounds; ``known``: the same of this round."""
        if self.gateways == 1 or not most:
            return most
        if not self._rounds:
            return max(1, most // self._expected)
        if most not in known:
            known[most] = min(given(each).get(self.gateway, 1) for each in self._rounds)
        return known[most]
