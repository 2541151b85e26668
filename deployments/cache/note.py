"""The one note that a cache keeps beside its entries: what it has learned, and its highest epoch."""

from __future__ import annotations

from typing import Protocol, Self

import msgspec

from deployments.cache.store import CacheStore

PURGES_AHEAD = 1 << 32
"""Epochs reserved in advance by one write, so that a purge needs no write of its own (which could fail on a
full disk). Epochs are nanoseconds of the clock, so this is about four seconds."""


class Notes(Protocol):
    """Something that keeps one text: a store, or a part of a store's note."""

    async def read_note(self) -> str | None: ...

    async def write_note(self, note: str) -> None: ...


class CacheNote:
    """One store's note, read once. Callers must await one write before they start the next."""

    def __init__(self, store: CacheStore, learned: str | None, epoch: int) -> None:
        self._store = store
        self._learned = learned
        self._epoch = epoch

    @classmethod
    async def read(cls, store: CacheStore) -> Self:
        """Read the store's note. A note from a version without epochs holds only what was learned.

        Raises:
            StoreError: the store failed.
        """
        text = await store.read_note()
        if text is None:
            return cls(store, None, 0)
        try:
            kept = msgspec.json.decode(text, type=_Kept)
        except msgspec.DecodeError:
            return cls(store, text, 0)
        return cls(store, None if kept.learned == NOTHING else bytes(kept.learned).decode(), kept.epoch)

    async def begin(self, epoch: int) -> int:
        """The first epoch of a starting cache: ``epoch``, or one above all that this store ever used, because
        this clock may be behind that of the last start.

        Raises:
            StoreError: the store failed; the cache must not answer before the epoch is saved.
        """
        begun = max(epoch, self._epoch + 1)
        self._epoch = begun + PURGES_AHEAD
        await self._write()
        return begun

    async def read_note(self) -> str | None:
        """Return what was learned."""
        return self._learned

    async def write_note(self, note: str) -> None:
        """Save what was learned. Raises: StoreError."""
        self._learned = note
        await self._write()

    async def _write(self) -> None:
        kept = _Kept(self._epoch, _json(self._learned))
        await self._store.write_note(msgspec.json.encode(kept).decode())


NOTHING = msgspec.Raw(b"null")


class _Kept(msgspec.Struct, frozen=True):
    epoch: int
    learned: msgspec.Raw = NOTHING


def _json(text: str | None) -> msgspec.Raw:
    """The text as JSON; ``NOTHING`` if it is not valid JSON, because it could not be loaded either."""
    try:
        msgspec.json.decode(text or "null")
    except msgspec.DecodeError:
        return NOTHING
    return msgspec.Raw((text or "null").encode())
