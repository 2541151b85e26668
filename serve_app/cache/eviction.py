"""Eviction from a full cache: which tenants' entries, how many, and which of them first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SLACK = 0.05
"""Eviction continues to this share below a bound, so that not every insert evicts."""


@dataclass(frozen=True, slots=True)
class Volume:
    """Entries and their bytes."""

    entries: int = 0
    size: int = 0

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.entries + other.entries, self.size + other.size)

    def __sub__(self, other: Volume) -> Volume:
        return Volume(max(0, self.entries - other.entries), max(0, self.size - other.size))

    def __bool__(self) -> bool:
        return self.entries > 0 or self.size > 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most entries and bytes; ``None``: no bound. ``tenant_entries`` applies to each tenant."""

    entries: int
    size: int | None = None
    tenant_entries: int | None = None


def worth(floor: float, uses: int, cost: float, size: int) -> float:
    """An entry's value: the entry with the least value is evicted first.

    GreedyDual-Size-Frequency (Cherkasova, "Improving WWW proxies performance with
    Greedy-Dual-Size-Frequency caching policy", HP Labs 1998): the cost that its answers saved so far, per
    byte, added to ``floor``, the value of the last evicted entry. The floor rises, so unused entries age.
    ``cost`` is the cost of generating the answer once more, in tokens: a hit saves the decoding.
    """
    return floor + uses * max(1.0, cost) / max(1, size)


def surplus(held: Mapping[str, Volume], bounds: Bounds) -> dict[str, Volume]:
    """The volume to evict from each tenant so that every bound holds with some slack; empty if all hold.

    The largest tenants lose entries first (max-min fairness): a tenant that fills the cache evicts its own
    entries, and never those of a tenant that holds less than an equal share.
    """
    given: dict[str, Volume] = {}
    if bounds.tenant_entries is not None:
        quota = bounds.tenant_entries
        for tenant, volume in held.items():
            if volume.entries > quota:
                given[tenant] = Volume(volume.entries - _below(quota))
    left = {tenant: volume - given.get(tenant, Volume()) for tenant, volume in held.items()}
    entries = _above_level({tenant: volume.entries for tenant, volume in left.items()}, bounds.entries)
    sizes = _above_level({tenant: volume.size for tenant, volume in held.items()}, bounds.size)
    for tenant in entries.keys() | sizes.keys():
        more = Volume(entries.get(tenant, 0), sizes.get(tenant, 0))
        given[tenant] = given.get(tenant, Volume()) + more
    return given


def _above_level(held: Mapping[str, int], bound: int | None) -> dict[str, int]:
    """How much each tenant holds above the level at which their sum is below the bound."""
    if bound is None or sum(held.values()) <= bound:
        return {}
    level = _level(held.values(), _below(bound))
    return {tenant: amount - level for tenant, amount in held.items() if amount > level}


def _below(bound: int) -> int:
    return bound - int(bound * SLACK)


def _level(amounts: Iterable[int], target: int) -> int:
    """The highest level at which amounts, cut there, add up to ``target`` or less."""
    ordered = sorted(amounts)
    for number, amount in enumerate(ordered):
        sharers = len(ordered) - number
        if amount * sharers > target:
            return target // sharers
        target -= amount
    return max(ordered, default=0)
