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
    """There is not enough room on its disk; it is not broken."""


@dataclass(frozen=True, slots=True)
class Match:
    """A near entry and its cosine similarity to what was searched for."""

    entry: CacheEntry
    similarity: float


@dataclass(frozen=True, slots=True)
class Evicted:
    """What went, and the value of the most valuable of it (0 if nothing went)."""

    volume: Volume = field(default_factory=Volume)
    value: float = 0.0


class CacheStore(Protocol):
    """Entries by id, and by nearness inside a partition. Calls may run at the same time; what a call wrote
    is seen by every call that begins after it returned.

    Every method may raise :class:`StoreError`. A call that failed or was cancelled may have happened.
    """

    @property
    def location(self) -> str:
        """The folder or address, for messages."""

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        """The entry with this id, expired or not."""

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        """At most ``limit`` entries of the partition that expire after ``now`` and were not made before
        ``oldest`` (Unix seconds), the nearest first.

        ``vector`` is float32 bytes of the store's dimension.
        """

    async def put(self, entry: CacheEntry) -> None:
        """Insert, or replace the entry with the same id."""

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        """Replace what is known of an entry; nothing else of it changes. One that is not there stays away."""

    async def read_note(self) -> str | None:
        """What ``write_note`` wrote last, in whatever process; ``None`` if it never did."""

    async def write_note(self, note: str) -> None:
        """Keep one text beside the entries. No entry, no selection and no deletion ever has to do with it."""

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        """At most ``limit`` entries that fit, in no fixed order."""

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        """All entries in the order of their ids, at most ``limit`` from ``after`` on (``None``: the first),
        and where the next page begins (``None``: nowhere)."""

    async def delete(self, selection: Selection) -> int:
        """Remove what fits; returns how many entries went."""

    async def delete_expired(self, now: float) -> int:
        """Remove what expired at ``now`` or before; returns how many entries went."""

    async def evict(self, tenant: str, volume: Volume) -> Evicted:
        """Remove a tenant's entries, those of least value first, until that many and that many bytes went."""

    async def usage(self) -> dict[str, Volume]:
        """What each tenant holds. It walks all entries, a page at a time: other calls go between."""

    async def count(self) -> int:
        """How many entries there are, expired ones included. A server that optimises may be a little off."""

    async def close(self) -> None:
        """Flush and release the folder or the connections. A second call does nothing."""
