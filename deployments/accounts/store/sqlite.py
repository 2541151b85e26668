"""Accounts in one SQLite file. One thread writes, because a commit waits for the disk; another reads."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from deployments.accounts.store import keys, limits, reports
from deployments.accounts.store.schema import FILE, open_file
from deployments.accounts.store.usage import find_usage, sweep_usage
from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import AccountsError, Kept, KeyPage, KeyQuery, ManagedKey
from serve_app.quotas.ledger import Total
from serve_app.quotas.limits import Limit
from serve_app.quotas.messages import LimitChanges
from serve_app.settings import AccountSettings
from serve_app.usage import UsagePage, UsageQuery

T = TypeVar("T")


class SqliteAccounts:
    """A :class:`~deployments.accounts.store.base.AccountStore`. It has many methods because the contract has
    them."""

    def __init__(self, folder: Path, settings: AccountSettings) -> None:
        """Blocks while the file is opened. Raises: AccountsError."""
        self._path = folder / FILE
        self._settings = settings
        self._writing, self._reading, self._name = open_file(folder)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="accounts-write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="accounts-read")

    async def exchange(self, report: Report, now: float) -> Changes:
        if not report.is_empty:
            await self._write(lambda db: reports.apply(db, report, now))
        return await self._read(lambda db: keys.changes(db, report, self._name))

    async def make_key(self, key: ManagedKey) -> Kept:
        most, of_tenant = self._settings.max_keys, self._settings.max_keys_per_tenant
        return await self._write(lambda db: keys.make(db, key, most, of_tenant))

    async def change_key(self, key: ManagedKey) -> Kept:
        return await self._write(lambda db: keys.change(db, key))

    async def key(self, key_id: str) -> ManagedKey | None:
        return await self._read(lambda db: keys.one(db, key_id))

    async def keys(self, query: KeyQuery) -> KeyPage:
        return await self._read(lambda db: keys.page(db, query))

    async def usage(self, query: UsageQuery) -> UsagePage:
        return await self._read(lambda db: find_usage(db, query))

    async def sweep(self, now: float) -> None:
        kept = datetime.fromtimestamp(now, UTC).date() - timedelta(days=self._settings.usage_keep_days)
        rows = self._settings.usage_max_rows
        while await self._write(lambda db: sweep_usage(db, kept.isoformat(), rows)):
            pass

    async def limits(self) -> tuple[list[Limit], int]:
        return await self._read(lambda db: (limits.everything(db), limits.newest(db)))

    async def put_limit(self, limit: Limit) -> int:
        return await self._write(lambda db: limits.put(db, limit))

    async def remove_limit(self, scope: str) -> int | None:
        return await self._write(lambda db: limits.remove(db, scope))

    async def limit_changes(self, since: int) -> tuple[LimitChanges, bool]:
        return await self._read(lambda db: limits.changes(db, since))

    async def write_used(self, totals: Sequence[Total], applied: Mapping[str, int], now: float) -> None:
        await self._write(lambda db: limits.write_used(db, totals, applied, now))

    async def used(self, now: float, recent_s: float) -> tuple[list[Total], dict[str, int]]:
        return await self._read(lambda db: limits.used(db, now, recent_s))

    async def close(self) -> None:
        """Ends after the calls that run now."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reader, self._reading.close)
        await loop.run_in_executor(self._writer, self._writing.close)
        self._reader.shutdown(wait=False)
        self._writer.shutdown(wait=False)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """In a transaction of its own. Raises: AccountsError: nothing was written."""

        def whole() -> T:
            self._refuse_on_full_disk()
            with self._writing:  # commits, or rolls back
                self._writing.execute("BEGIN IMMEDIATE")
                return work(self._writing)

        return await self._run(self._writer, whole)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run(self._reader, lambda: work(self._reading))

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            raise AccountsError(f"accounts {self._path}: {error}") from error

    def _refuse_on_full_disk(self) -> None:
        """Raises: OSError."""
        least = self._settings.min_free_disk_bytes
        free = shutil.disk_usage(self._path.parent).free
        if free < least:
            raise OSError(f"{free} bytes of disk are free (accounts.min_free_disk_bytes: {least})")
