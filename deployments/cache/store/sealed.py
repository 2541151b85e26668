"""A store that encrypts the texts, with a separate key per tenant.

Qdrant sees an entry's ids, tenant, model, tags, times, sizes and its vector, which it needs for the search; a
vector roughly reveals a text's subject. The texts themselves, question and answer, are sealed (AES-256-GCM)
and bound to the entry, so they cannot be moved to another question or tenant.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import msgspec

from deployments.cache.store.base import CacheStore, Evicted, Match, StoreError
from deployments.platform.sealing import TenantSeal, sealing_keys
from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume
from serve_app.openai.answers import Answer

PURPOSE = b"promptly-cache"


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """The encrypted part of an entry."""

    text: str
    answer: Answer


class Sealer:
    """Seals with the first key and opens with any, so that keys can be rotated without losing entries."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._seal = TenantSeal(keys, PURPOSE)

    def seal(self, entry: CacheEntry) -> CacheEntry:
        """The same entry with its question and answer encrypted."""
        plain = msgspec.msgpack.encode(Sealed(entry.text, entry.answer))
        secret = self._seal.seal(entry.tenant, plain, _context(entry))
        hidden = Answer(entry.answer.model, "", entry.answer.usage)
        return replace(entry, text=base64.b64encode(secret).decode(), answer=hidden)

    def open(self, entry: CacheEntry) -> CacheEntry | None:
        """The decrypted entry; ``None`` if no key opens it, or if it was moved or changed."""
        try:
            secret = base64.b64decode(entry.text, validate=True)
            plain = self._seal.open(entry.tenant, secret, _context(entry))
            found = None if plain is None else msgspec.msgpack.decode(plain, type=Sealed)
        except (ValueError, msgspec.DecodeError):  # not base64, or no entry
            return None
        return None if found is None else replace(entry, text=found.text, answer=found.answer)


class SealedStore:
    """A :class:`~deployments.cache.store.base.CacheStore` that encrypts the entries of another store. It has
    this many methods because the contract has them."""

    def __init__(self, store: CacheStore, sealer: Sealer) -> None:
        self._store = store
        self._sealer = sealer

    @property
    def location(self) -> str:
        return self._store.location

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        entry = await self._store.get(entry_id)
        return None if entry is None else self._sealer.open(entry)

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        found = await self._store.nearest(partition, vector, now, oldest, limit)
        opened = ((self._sealer.open(match.entry), match.similarity) for match in found)
        return [Match(entry, similarity) for entry, similarity in opened if entry is not None]

    async def put(self, entry: CacheEntry) -> None:
        await self._store.put(self._sealer.seal(entry))

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        await self._store.annotate(entry_id, annotation)

    async def read_note(self) -> str | None:
        return await self._store.read_note()

    async def write_note(self, note: str) -> None:
        """The note is not encrypted: it holds only numbers and hashes."""
        await self._store.write_note(note)

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        opened = (self._sealer.open(entry) for entry in await self._store.select(selection, limit))
        return [entry for entry in opened if entry is not None]

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        entries, following = await self._store.page(after, limit)
        opened = (self._sealer.open(entry) for entry in entries)
        return [entry for entry in opened if entry is not None], following

    async def delete(self, selection: Selection) -> int:
        return await self._store.delete(selection)

    async def delete_expired(self, now: float) -> int:
        return await self._store.delete_expired(now)

    async def evict(self, tenant: str, volume: Volume) -> Evicted:
        return await self._store.evict(tenant, volume)

    async def usage(self) -> dict[str, Volume]:
        return await self._store.usage()

    async def count(self) -> int:
        return await self._store.count()

    async def close(self) -> None:
        await self._store.close()


def sealer_from(variable: str, environment: Mapping[str, str] = os.environ) -> Sealer:
    """Read the keys from an environment variable: one or more of 32 bytes in base64, separated by commas; the
    first one seals.

    Raises:
        StoreError: the variable is not set or is malformed. The message never shows its value.
    """
    try:
        return Sealer(sealing_keys(variable, environment, "the cache"))
    except ValueError as error:
        raise StoreError(str(error)) from None


def _context(entry: CacheEntry) -> bytes:
    """The associated data that binds a sealed text to its entry."""
    return f"{entry.entry_id}\0{entry.tenant}\0{entry.model}\0{entry.partition}".encode()
