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
    NewItem,
    Outcome,
    Record,
    StoreError,
    StoreStats,
)

T = TypeVar("T")


class SqliteStore:
    """A :class:`~deployments.responses.store.base.ResponseStore`. It has this many methods because the
    contract has them."""

    def __init__(self, folder: Path, settings: ResponsesSettings, now: float) -> None:
        """Blocks while the file is opened. ``now``: Unix seconds. Raises: StoreError."""
        self._path = folder / FILE
        self._writing, self._reading = open_file(folder)
        self._room = Room(settings, folder)
        self._threads = Threads(self._writing, self._room, settings)
        self._conversations = ConversationWrites(self._threads, self._room)
        self._responses = ResponseWrites(
            self._threads, self._room, self._conversations, settings.max_entry_bytes
        )
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="responses-write")
        try:
            self._threads.begin(now)
        except sqlite3.Error as error:
            raise StoreError(f"responses {self._path}: {error}") from error

    async def put(self, record: Record, items: Sequence[NewItem], now: float) -> Outcome:
        return await self._write(lambda: self._responses.put(record, items, now))

    async def get(self, tenant: str, response_id: str, now: float) -> Found:
        return self._read(lambda: reads.record_of(self._reading, tenant, response_id, now))

    async def history(self, tenant: str, response_id: str, bounds: ChainBounds, now: float) -> History:
        return self._read(lambda: reads.history_of(self._reading, tenant, response_id, bounds, now))

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
        return self._read(lambda: reads.conversation_of(self._reading, tenant, conversation_id, now))

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
        return self._read(lambda: reads.items_of(self._reading, tenant, conversation_id, bounds, now))

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
        """Ends after the write that runs now."""
        self._reading.close()
        await asyncio.get_running_loop().run_in_executor(self._writer, self._writing.close)
        self._writer.shutdown(wait=False)

    async def _write(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, work)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            raise StoreError(f"responses {self._path}: {error}") from error

    def _read(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.Error as error:
            raise StoreError(f"responses {self._path}: {error}") from error
