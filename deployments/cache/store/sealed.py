"""A store that encrypts the texts, with a separate key per tenant.

Qdrant sees an entry's ids, tenant, model, tags, times, sizes and its vector, which it needs for the search; a
vector roughly reveals a text's subject. The texts themselves, question and answer, are sealed (AES-256-GCM)
and bound to the entry, so they cannot be moved to another question or tenant.
"""

from __future__ import annotations

import base64
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from deployments.cache.store.base import CacheStore, Evicted, Match, StoreError
from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume
from serve_app.openai.answers import Answer

KEY_BYTES = 32
NONCE_BYTES = 12
TENANT_KEYS = 1024
"""Derived keys kept in memory; deriving one takes about 20 µs."""


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """The encrypted part of an entry."""

    text: str
    answer: Answer


class Sealer:
    """Seals with the first key and opens with any, so that keys can be rotated without losing entries."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)
        self._ciphers: OrderedDict[tuple[int, str], AESGCM] = OrderedDict()

    def seal(self, entry: CacheEntry) -> CacheEntry:
        """The same entry with its question and answer encrypted."""
        nonce = os.urandom(NONCE_BYTES)
        plain = msgspec.msgpack.encode(Sealed(entry.text, entry.answer))
        secret = nonce + self._cipher(0, entry.tenant).encrypt(nonce, plain, _context(entry))
        hidden = Answer(entry.answer.model, "", entry.answer.usage)
        return replace(entry, text=base64.b64encode(secret).decode(), answer=hidden)

    def open(self, entry: CacheEntry) -> CacheEntry | None:
        """The decrypted entry; ``None`` if no key opens it, or if it was moved or changed."""
        try:
            secret = base64.b64decode(entry.text, validate=True)
        except ValueError:  # not base64
            return None
        for number in range(len(self._keys)):
            try:
                plain = self._cipher(number, entry.tenant).decrypt(
                    secret[:NONCE_BYTES], secret[NONCE_BYTES:], _context(entry)
                )
                found = msgspec.msgpack.decode(plain, type=Sealed)
            except (InvalidTag, ValueError, msgspec.DecodeError):
                continue
            return replace(entry, text=found.text, answer=found.answer)
        return None

    def _cipher(self, number: int, tenant: str) -> AESGCM:
        cipher = self._ciphers.get((number, tenant))
        if cipher is None:
            derived = HKDF(SHA256(), KEY_BYTES, salt=None, info=b"promptly-cache\0" + tenant.encode())
            cipher = self._ciphers[number, tenant] = AESGCM(derived.derive(self._keys[number]))
            if len(self._ciphers) > TENANT_KEYS:
                self._ciphers.popitem(last=False)
        return cipher


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
    value = environment.get(variable, "").strip()
    if not value:
        raise StoreError(f"the variable {variable} (`encryption_key_env`) is not set where the cache runs")
    try:
        keys = [base64.b64decode(part.strip(), validate=True) for part in value.split(",")]
    except ValueError:
        keys = []
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise StoreError(
            f"the variable {variable} (`encryption_key_env`) must hold {KEY_BYTES} random bytes in base64 "
            "(`openssl rand -base64 32`), or several separated by commas"
        )
    return Sealer(keys)


def _context(entry: CacheEntry) -> bytes:
    """The associated data that binds a sealed text to its entry."""
    return f"{entry.entry_id}\0{entry.tenant}\0{entry.model}\0{entry.partition}".encode()
