"""The contract of a cache store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from serve_app.cache.entry import CacheEntry, Selection


class StoreError(RuntimeError):
    """The store cannot be opened, read or written; the message names its folder or address."""


@dataclass(frozen=True, slots=True)
class Match:
    """A near entry and its cosine similarity to what was searched for."""

    entry: CacheEntry
    similarity: float


class CacheStore(Protocol):
    """Entries by id, and by nearness inside a partition. Calls block; one thread uses a store at a time.

    Every method may raise :class:`StoreError`.
    """

    @property
    def location(self) -> str:
        """The folder or address, for messages."""

    def get(self, entry_id: UUID) -> CacheEntry | None:
        """The entry with this id, expired or not."""

    def nearest(self, partition: str, vector: bytes, now: float, oldest: float) -> Match | None:
        """The nearest entry of the partition that expires after ``now`` and was made after ``oldest``.

        ``vector`` is float32 bytes of the store's dimension.
        """

    def put(self, entry: CacheEntry) -> None:
        """Insert, or replace the entry with the same id."""

    def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        """At most ``limit`` entries that fit, in no fixed order."""

    def delete(self, selection: Selection) -> int:
        """Remove what fits; returns how many entries went."""

    def delete_expired(self, now: float) -> int:
        """Remove what expired before ``now``; returns how many entries went."""

    def delete_oldest(self, count: int) -> None:
        """Remove the ``count`` entries that were made first."""

    def count(self) -> int:
        """How many entries there are, expired ones included."""

    def close(self) -> None:
        """Flush and release the folder."""
