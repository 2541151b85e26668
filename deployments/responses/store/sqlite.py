"""Responses in one SQLite file.

One thread writes, because a checkpoint waits for the disk. Reads run in the event loop: one by its key takes
some 30 µs, less than handing it to a thread does, and no read waits for a write (WAL).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from deployments.responses.store import reads
from deployments.responses.store.conversation_writes import ConversationWrites
from deployments.responses.store.room import Room
from deployments.responses.store.schema import FILE, open_file
from deployments.responses.store.threads import Threads
from deployments.responses.store.writes import ResponseWrites
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.values import (
    Absence,
    Added,
    ChainBounds,
    Conversation,
    Found,
    FoundConversation,
    History,
    Listed,
    NewItem,
    Outcome,
    Part,
    Record,
    StoreError,
    StoreStats,
)

T = TypeVar("T")

INLINE_BYTES = 262_144
"""Up to this size a read takes less than a millisecond of the event loop, where all other calls wait."""


class SqliteStore:
    """A :class:`~deployments.responses.store.base.ResponseStore`. It has this many methods because the
    contract has them."""

    def __init__(self, folder: Path, settings: ResponsesSettings, now: float) -> None:
        """Blocks while the file is opened. ``now``: Unix seconds. Raises: StoreError."""
        self._path = folder / FILE
        self._writing, self._reading, self._reading_large = open_file(folder)
        self._room = Room(settings, folder)
        self._page_bytes = settings.max_chain_bytes
        self._threads = Threads(self._writing, self._room, settings)
        self._conversations = ConversationWrites(self._threads, self._room)
        self._responses = ResponseWrites(
            self._threads, self._room, self._conversations, settings.max_entry_bytes
        )
        self._puts: dict[tuple[str, str, str], asyncio.Future[Outcome]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="responses-write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="responses-read")
        try:
            self._threads.begin(now)
        except sqlite3.Error as error:
            raise StoreError(f"responses {self._path}: {error}") from error

    async def put(self, record: Record, items: Sequence[NewItem], now: float) -> Outcome:
        """While the disk stalls, callers try again: all tries wait for the first one's write."""
        state = (record.tenant, record.id, record.status)
        writing = self._puts.get(state)
        if writing is None:
            writing = asyncio.ensure_future(self._write(lambda: self._responses.put(record, items, now)))
            self._puts[state] = writing
            writing.add_done_callback(lambda done: self._put_ended(state, done))
        return await asyncio.shield(writing)

    def _put_ended(self, state: tuple[str, str, str], done: asyncio.Future[Outcome]) -> None:
        del self._puts[state]
        if not done.cancelled():
            done.exception()  # its caller may have left

    async def get(self, tenant: str, response_id: str, now: float) -> Found:
        size = self._size(reads.record_bytes, tenant, response_id)
        return await self._read(size, lambda db: reads.record_of(db, tenant, response_id, now))

    async def history(self, tenant: str, response_id: str, bounds: ChainBounds, now: float) -> History:
        size = self._size(reads.chain_bytes, tenant, response_id)
        return await self._read(size, lambda db: reads.history_of(db, tenant, response_id, bounds, now))

    async def status(self, tenant: str, response_id: str, now: float) -> str | None:
        return await self._read(0, lambda db: reads.status_of(db, tenant, response_id, now))

    async def own_items(self, tenant: str, response_id: str, with_input: bool, now: float) -> History:
        size = self._size(reads.record_bytes, tenant, response_id)
        return await self._read(size, lambda db: reads.own_items_of(db, tenant, response_id, with_input, now))

    async def delete(self, tenant: str, response_id: str, now: float) -> Absence | None:
        return await self._write(lambda: self._responses.delete(tenant, response_id, now))

    async def cancel(self, tenant: str, response_id: str, now: float) -> Found:
        return await self._write(lambda: self._responses.cancel(tenant, response_id, now))

    async def beat(self, owner: str, running: Sequence[str], now: float) -> list[str]:
        return await self._write(lambda: self._responses.beat(owner, running, now))

    async def create_conversation(
        self, tenant: str, conversation: Conversation, items: Sequence[NewItem], now: float
    ) -> Outcome:
        return await self._write(lambda: self._conversations.create(tenant, conversation, items, now))

    async def conversation(self, tenant: str, conversation_id: str, now: float) -> FoundConversation:
        return await self._read(0, lambda db: reads.conversation_of(db, tenant, conversation_id, now))

    async def set_metadata(
        self, tenant: str, conversation_id: str, metadata: bytes, now: float
    ) -> FoundConversation:
        return await self._write(
            lambda: self._conversations.set_metadata(tenant, conversation_id, metadata, now)
        )

    async def delete_conversation(self, tenant: str, conversation_id: str, now: float) -> Absence | None:
        return await self._write(lambda: self._conversations.delete(tenant, conversation_id, now))

    async def conversation_items(
        self, tenant: str, conversation_id: str, bounds: ChainBounds, now: float
    ) -> History:
        size = self._size(reads.conversation_bytes, tenant, conversation_id)
        return await self._read(size, lambda db: reads.items_of(db, tenant, conversation_id, bounds, now))

    async def listed_items(self, tenant: str, conversation_id: str, part: Part, now: float) -> Listed:
        size = self._size(reads.conversation_bytes, tenant, conversation_id)
        most = self._page_bytes
        return await self._read(
            size, lambda db: reads.listed_of(db, tenant, conversation_id, part, now, most_bytes=most)
        )

    async def conversation_item(self, tenant: str, conversation_id: str, item_id: str, now: float) -> Listed:
        size = self._size(reads.conversation_bytes, tenant, conversation_id)
        return await self._read(size, lambda db: reads.item_of(db, tenant, conversation_id, item_id, now))

    async def add_items(
        self, tenant: str, conversation_id: str, items: Sequence[NewItem], now: float
    ) -> Added:
        return await self._write(lambda: self._conversations.add_items(tenant, conversation_id, items, now))

    async def delete_item(
        self, tenant: str, conversation_id: str, item_id: str, now: float
    ) -> Absence | None:
        return await self._write(
            lambda: self._conversations.delete_item(tenant, conversation_id, item_id, now)
        )

    async def sweep(self, now: float) -> None:
        while await self._write(lambda: self._threads.sweep(now)):
            pass

    async def stats(self) -> StoreStats:
        total = self._room.total
        return StoreStats(total.entries, total.bytes, str(self._path))

    async def close(self) -> None:
        """Ends after the calls that run now."""
        self._reading.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reader, self._reading_large.close)
        await loop.run_in_executor(self._writer, self._writing.close)
        self._reader.shutdown(wait=False)
        self._writer.shutdown(wait=False)

    async def _write(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, work)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            raise StoreError(f"responses {self._path}: {error}") from error

    def _size(self, of: Callable[[sqlite3.Connection, str, str], int], tenant: str, wanted: str) -> int:
        try:
            return of(self._reading, tenant, wanted)
        except sqlite3.Error as error:
            raise StoreError(f"responses {self._path}: {error}") from error

    async def _read(self, size: int, work: Callable[[sqlite3.Connection], T]) -> T:
        """What is small is read at once, as a thread would take longer than the read."""
        try:
            if size <= INLINE_BYTES:
                return work(self._reading)
            return await asyncio.get_running_loop().run_in_executor(self._reader, work, self._reading_large)
        except (sqlite3.Error, RuntimeError) as error:
            raise StoreError(f"responses {self._path}: {error}") from error
