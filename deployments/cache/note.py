"""The one text that a cache keeps beside its entries: what it learned, and how far its epochs went."""

from __future__ import annotations

from typing import Protocol, Self

import msgspec

from deployments.cache.store import CacheStore

PURGES_AHEAD = 1 << 32
"""Epochs that are written down before they are used, so that no purge waits for a write of its own (nor fails
where the disk is full). As a time it is four seconds."""


class Notes(Protocol):
    """What keeps a text: a store, or a part of its note."""

    async def read_note(self) -> str | None: ...

    async def write_note(self, note: str) -> None: ...


class CacheNote:
    """One store's note, read once. Its users take turns: a write is awaited before the next one."""

    def __init__(self, store: CacheStore, learned: str | None, epoch: int) -> None:
        self._store = store
        self._learned = learned
        self._epoch = epoch

    @classmethod
    async def read(cls, store: CacheStore) -> Self:
        """A note of before epochs were kept is all of it what was learned.

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
        """The epoch of a cache that starts: ``epoch``, or one above all that were ever used on this store, as
        a clock may be behind the one of the last start.

        Raises:
            StoreError: the store failed; nothing may be answered before this is written down.
        """
        begun = max(epoch, self._epoch + 1)
        self._epoch = begun + PURGES_AHEAD
        await self._write()
        return begun

    async def read_note(self) -> str | None:
        """What was learned."""
        return self._learned

    async def write_note(self, note: str) -> None:
        """Keep what was learned. Raises: StoreError."""
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
    """What is no JSON was not readable as anything learned either."""
    try:
        msgspec.json.decode(text or "null")
    except msgspec.DecodeError:
        return NOTHING
    return msgspec.Raw((text or "null").encode())
