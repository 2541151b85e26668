"""The shards of a cache: which shard owns which partition, and how their figures and pages are merged.

No search spans two partitions, so a shard has all state of its partitions to itself: entries, what is
learned, the requests in flight. Only purges concern all shards.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from serve_app.cache.entry import CacheEntry, CacheStats

COUNTS = frozenset({"audits", "observations", "blocked_pairs"})
"""Learned figures that are summed over the shards; of every other figure the largest is shown."""

Page = tuple[list[CacheEntry], UUID | None]
"""Entries ordered by id, and the id at which the next page begins."""


@dataclass(frozen=True, slots=True)
class Shards:
    """``count`` shards, numbered from 0."""

    count: int = 1

    def owner(self, partition: str) -> int:
        """The shard of a partition, by rendezvous hashing: every gateway computes the same shard, and when
        shards are added or removed, only the partitions of those shards change their owner."""
        if self.count == 1:
            return 0
        return max(range(self.count), key=lambda shard: _weight(partition, shard))


def _weight(partition: str, shard: int) -> bytes:
    return hashlib.blake2b(f"{shard}\0{partition}".encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Place:
    """One shard among all. ``shared``: all shards keep their entries in one store, a server; otherwise each
    has a store of its own."""

    shard: int = 0
    of: int = 1
    shared: bool = False

    @property
    def is_first(self) -> bool:
        return self.shard == 0

    def part(self, most: int) -> int:
        """How much of ``most``, a bound on all entries, this shard's store may hold: all if the store is
        shared, else an equal part, rounded up."""
        return most if self.shared else -(-most // self.of)


ALONE = Place()


def merged_stats(each: Sequence[CacheStats], *, shared: bool) -> CacheStats:
    """The figures of all shards together. The epoch is the highest one, because each shard counts its own."""
    if len(each) == 1:
        return each[0]
    paths = dict.fromkeys(stats.path for stats in each if stats.path)
    errors = (
        f"shard {shard}: {stats.error}" for shard, stats in enumerate(each, 1) if stats.error is not None
    )
    refused: Counter[str] = Counter()
    for stats in each:
        refused.update(stats.refused)
    return CacheStats(
        entries=max(stats.entries for stats in each) if shared else sum(stats.entries for stats in each),
        epoch=max(stats.epoch for stats in each),
        path=", ".join(paths),
        error="; ".join(errors) or None,
        refused=dict(refused),
        bound=_merged_bound([stats.bound for stats in each]),
    )


def _merged_bound(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for bound in each for name in bound)
    values = {name: [bound[name] for bound in each if name in bound] for name in names}
    return {name: sum(known) if name in COUNTS else max(known) for name, known in values.items()}


def merged_page(pages: Sequence[Page], limit: int) -> Page:
    """The first ``limit`` entries of all shards, from one page of each that begins at the same id."""
    horizon = min((following for _, following in pages if following is not None), default=None)
    # A shard's entries beyond its own page are not known yet, so no entry from there on is returned.
    known = sorted(
        (entry for entries, _ in pages for entry in entries if horizon is None or entry.entry_id < horizon),
        key=lambda entry: entry.entry_id,
    )
    following = known[limit].entry_id if len(known) > limit else horizon
    return known[:limit], following
