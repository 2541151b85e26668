"""The order of the tenants that wait, kept sorted: a thousand of them cost a request a few microseconds."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator

Place = tuple[float, int, int, str]
"""A tenant's place among those that wait: its counter, its slots, its last turn, its name."""


class Turns:
    """Tenants by their places, and how many requests of each wait."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._order: list[Place] = []
        self._without: list[Place] = []  # of them, those that hold no slot
        self._lengths: Counter[int] = Counter()  # how many tenants have a queue of this length
        self.waiting = 0

    @property
    def least(self) -> float | None:
        """The least counter of a tenant that waits."""
        return self._order[0][0] if self._order else None

    def __iter__(self) -> Iterator[str]:
        return iter([place[-1] for place in self._order])

    def within(self, credit: float) -> Iterator[str]:
        """The tenants in the order in which they are served: first those without a slot, if their counters
        are at most ``credit`` above the least, then the others, both by counter. It ends with the first
        change."""
        if not self._order:
            return
        bound = self._order[0][0] + credit
        for place in self._without:
            if place[0] > bound:
                break
            yield place[-1]
        for place in self._order:
            if place[1] or place[0] > bound:
                yield place[-1]

    def move(self, name: str, place: Place | None) -> None:
        """The tenant has another place; ``None``: it no longer waits."""
        old = self._places.pop(name, None)
        if old is not None:
            del self._order[bisect_left(self._order, old)]
            if not old[1]:
                del self._without[bisect_left(self._without, old)]
        if place is not None:
            self._places[name] = place
            insort(self._order, place)
            if not place[1]:
                insort(self._without, place)

    def resized(self, before: int, after: int) -> None:
        """A tenant's queue has another length."""
        self.waiting += after - before
        self._lengths[after] += 1
        self._lengths[before] -= 1
        if not self._lengths[before]:
            del self._lengths[before]

    def up_to(self, most: int) -> int:
        """How many requests wait, if no more than ``most`` of each tenant count."""
        return sum(min(length, most) * tenants for length, tenants in self._lengths.items())
