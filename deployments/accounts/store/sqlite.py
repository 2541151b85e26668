"""Accounts in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from deployments.accounts.store.base import Sql
from deployments.accounts.store.schema import FILE, open_file
from deployments.accounts.store.sql import SqlAccounts
from deployments.platform.store_threads import StoreThreads, refuse_on_full_disk
from serve_app.accounts.keys import AccountsError
from serve_app.settings import AccountSettings

T = TypeVar("T")


class SqliteAccounts(SqlAccounts):
    def __init__(self, folder: Path, settings: AccountSettings) -> None:
        """Blocks while the file is opened. Raises: AccountsError."""
        self._path = folder / FILE
        self._settings = settings
        self._writing, self._reading, self._name = open_file(folder)
        self._threads = StoreThreads("accounts")

    async def close(self) -> None:
        await self._threads.close(self._reading.close, self._writing.close)

    async def _write(self, work: Callable[[Sql], T]) -> T:
        """In a transaction of its own. Raises: AccountsError: nothing was written."""

        def whole() -> T:
            least = self._settings.min_free_disk_bytes
            refuse_on_full_disk(self._path.parent, least, "accounts.min_free_disk_bytes")
            with self._writing:  # commits, or rolls back
                self._writing.execute("BEGIN IMMEDIATE")
                return work(self._writing)

        return await self._run(self._threads.write(whole))

    async def _read(self, work: Callable[[Sql], T]) -> T:
        return await self._run(self._threads.read(lambda: work(self._reading)))

    async def _run(self, done: Awaitable[T]) -> T:
        try:
            return await done
        except (sqlite3.Error, OSError, RuntimeError) as error:
            raise AccountsError(f"accounts {self._path}: {error}") from error
