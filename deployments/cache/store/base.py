"""The contract of a cache store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume


class StoreError(RuntimeError):
    """The store cannot be opened, read or written; the message names its folder or address."""


class StoreFull(StoreError):
    """The store's disk is too full to write; the store itself works."""


@dataclass(frozen=True, slots=True)
class Match:
    """A near entry and its cosine similarity to the query."""

    entry: CacheEntry
    similarity: float


@dataclass(frozen=True, slots=True)
class Evicted:
    """How much was evicted, and the highest value among the evicted entries (0 if there were none)."""

    volume: Volume = field(default_factory=Volume)
    value: float = 0.0


class CacheStore(Protocol):
    """Finds entries by id, or by similarity within a partition. Calls may run concurrently; a call that
    begins after a write returned sees that write. It has this many methods because the cache needs that many
    operations, each of which a backend does in its own way.

    Every method may raise :class:`StoreError`. A call that failed or was cancelled may still take effect.
    """

    @property
    def location(self) -> str:
        """The folder or address, for messages."""

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        """The entry with this id, expired or not."""

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        """At most ``limit`` entries of the partition that expire after ``now`` and were made at ``oldest`` or
        later (Unix seconds), nearest first.

        ``vector`` is float32 bytes of the store's dimension.
        """

    async def put(self, entry: CacheEntry) -> None:
        """Insert, or replace the entry with the same id."""

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        """Replace an entry's annotation and nothing else. Does nothing if there is no such entry."""

    async def read_note(self) -> str | None:
        """What ``write_note`` wrote last, in any process; ``None`` if nothing was ever written."""

    async def write_note(self, note: str) -> None:
        """Keep one text beside the entries. It is not an entry: selections and deletions never touch it."""

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        """At most ``limit`` matching entries, in no fixed order."""

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        """One page of all entries, ordered by id: at most ``limit`` entries from the id ``after`` on
        (``None``: from the first), and the id at which the next page begins (``None``: this was the last
        page)."""

    async def delete(self, selection: Selection) -> int:
        """Remove the matching entries; returns how many were removed."""

    async def delete_expired(self, now: float) -> int:
        """Remove entries that expired at ``now`` or before; returns how many were removed."""

    async def evict(self, tenant: str, volume: Volume) -> Evicted:
        """Remove a tenant's entries, least valuable first, until ``volume`` (entries and bytes) is freed."""

    async def usage(self) -> dict[str, Volume]:
        """The volume that each tenant holds. Walks all entries page by page; other calls run in between."""

    async def count(self) -> int:
        """The number of entries, including expired ones. Slightly off while a Qdrant server optimises."""

    async def close(self) -> None:
        """Flush and release the folder or the connections. A second call does nothing."""
