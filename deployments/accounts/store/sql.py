"""Accounts in tables: the calls of the contract, each one short piece of work on a database.

The statements are those that SQLite and Postgres both know: ``?`` stands for a value, and names that Postgres
has for itself (``"user"``) are quoted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from deployments.accounts.store import keys, limits, refused, reports
from deployments.accounts.store.base import Sql
from deployments.accounts.store.usage import find_usage, sweep_usage
from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import Kept, KeyPage, KeyQuery, ManagedKey, Outcome
from serve_app.accounts.refused import Refused, RefusedUser
from serve_app.quotas.ledger import Total
from serve_app.quotas.limits import Limit
from serve_app.quotas.messages import LimitChanges
from serve_app.settings import AccountSettings
from serve_app.usage import UsagePage, UsageQuery

T = TypeVar("T")


class SqlAccounts(ABC):
    """An :class:`~deployments.accounts.store.base.AccountStore`, but for opening and closing. It has many
    methods because the contract has them. ``_name``: of this database, so that a gateway which knows another
    one reads everything again."""

    _settings: AccountSettings
    _name: str

    async def exchange(self, report: Report, now: float) -> Changes:
        if not report.is_empty:
            await self._write(lambda db: reports.apply(db, report, now))
        return await self._read(lambda db: _news(db, report, self._name))

    async def make_key(self, key: ManagedKey) -> Kept:
        most, of_tenant = self._settings.max_keys, self._settings.max_keys_per_tenant
        return await self._write(lambda db: keys.make(db, key, most, of_tenant))

    async def change_key(self, key: ManagedKey) -> Kept:
        return await self._write(lambda db: keys.change(db, key))

    async def key(self, key_id: str) -> ManagedKey | None:
        return await self._read(lambda db: keys.one(db, key_id))

    async def keys(self, query: KeyQuery) -> KeyPage:
        return await self._read(lambda db: keys.page(db, query))

    async def refuse_user(self, user: RefusedUser) -> Outcome:
        return await self._write(lambda db: refused.refuse(db, user))

    async def let_in_user(self, tenant: str, user: str, is_admin: bool) -> Outcome:
        return await self._write(lambda db: refused.let_in(db, tenant, user, is_admin))

    async def refused_users(self) -> Refused:
        return await self._read(refused.everyone)

    async def usage(self, query: UsageQuery) -> UsagePage:
        return await self._read(lambda db: find_usage(db, query))

    async def sweep(self, now: float) -> None:
        kept = datetime.fromtimestamp(now, UTC).date() - timedelta(days=self._settings.usage_keep_days)
        rows = self._settings.usage_max_rows
        while await self._write(lambda db: sweep_usage(db, kept.isoformat(), rows)):
            pass
        await self._write(lambda db: limits.forget_gateways(db, now))

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

    async def used(self, now: float) -> tuple[list[Total], dict[str, int]]:
        return await self._read(lambda db: limits.used(db, now))

    @abstractmethod
    async def close(self) -> None:
        """Ends after the calls that run now."""

    @abstractmethod
    async def _write(self, work: Callable[[Sql], T]) -> T:
        """In a transaction of its own; one after the other. Raises: AccountsError: nothing was written."""

    @abstractmethod
    async def _read(self, work: Callable[[Sql], T]) -> T:
        """Raises: AccountsError."""


def _news(db: Sql, report: Report, name: str) -> Changes:
    changes = keys.changes(db, report, name)
    if report.refused == refused.version(db):
        return changes
    return msgspec.structs.replace(changes, refused=refused.everyone(db))
