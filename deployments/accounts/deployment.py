"""The Accounts deployment: the calls that gateways make, each with the time of this process's clock."""

from __future__ import annotations

import asyncio
import time

import msgspec

from deployments.accounts.auditing import Auditing
from deployments.accounts.quota_owner import QuotaOwner
from deployments.accounts.store.base import AccountStore
from deployments.accounts.store.registry import folder_of, open_store
from deployments.wire.owner import Ownership, StoreOwner
from serve_app.accounts.calls import ACCOUNTS
from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import AccountsError, Kept, KeyPage, KeyQuery, ManagedKey, Outcome
from serve_app.accounts.refused import Refused, RefusedUser
from serve_app.audit import AuditEvent, AuditPage, Head
from serve_app.quotas.limits import Limit
from serve_app.quotas.messages import LeaseCall, LeaseReply, LimitPage
from serve_app.settings import AccountSettings
from serve_app.settings.network import ANY_PORT
from serve_app.usage import UsagePage, UsageQuery

OWNS = Ownership(
    name="accounts",
    interface=ACCOUNTS,
    failure=AccountsError,
    sweep_period_s=600.0,
    not_open="accounts are not kept",
    not_swept="old usage was not removed",
)


class Accounts(StoreOwner[AccountStore]):
    """While the file cannot be opened, the keys that gateways know hold. It has many methods because Serve
    calls one class and gateways have that many calls."""

    async def __init__(self, settings: AccountSettings, *, ports: range = ANY_PORT) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__(OWNS, ports)
        self._settings = settings
        self._quotas: QuotaOwner | None = None
        self._auditing = Auditing(folder_of(settings), settings)
        await self.begin()

    async def open_store(self) -> AccountStore:
        store = await asyncio.to_thread(open_store, self._settings)
        quotas = QuotaOwner(store, self._settings)
        try:
            await quotas.begin()
        except AccountsError:
            await store.close()  # the next try opens another one, which needs this one's lock
            raise
        self._quotas = quotas
        return store

    async def exchange(self, report: Report) -> Changes:
        changes = await self.store.exchange(report, time.time())
        knows = report.store == changes.store
        limits, more = await self.quotas.changes(report.limits_version if knows else 0)
        return msgspec.structs.replace(changes, limits=limits, more=changes.more or more)

    async def lease(self, call: LeaseCall) -> LeaseReply:
        return self.quotas.lease(call)

    async def set_limit(self, limit: Limit) -> int:
        return await self.quotas.put(limit)

    async def remove_limit(self, scope: str) -> int | None:
        return await self.quotas.remove(scope)

    async def limits(self, begins: str, after: str, most: int) -> LimitPage:
        return self.quotas.page(begins, after, most)

    async def make_key(self, key: ManagedKey) -> Kept:
        return await self.store.make_key(key)

    async def change_key(self, key: ManagedKey) -> Kept:
        return await self.store.change_key(key)

    async def key(self, key_id: str) -> ManagedKey | None:
        return await self.store.key(key_id)

    async def keys(self, query: KeyQuery) -> KeyPage:
        return await self.store.keys(query)

    async def refuse_user(self, user: RefusedUser) -> Outcome:
        return await self.store.refuse_user(user)

    async def let_in_user(self, tenant: str, user: str, is_admin: bool) -> Outcome:
        return await self.store.let_in_user(tenant, user, is_admin)

    async def refused_users(self) -> Refused:
        return await self.store.refused_users()

    async def usage(self, query: UsageQuery) -> UsagePage:
        return await self.store.usage(query)

    async def audit(self, event: AuditEvent) -> Head:
        return await self._auditing.write(event)

    async def audit_lines(self, count: int) -> AuditPage:
        return await self._auditing.newest(count)

    @property
    def quotas(self) -> QuotaOwner:
        """Raises: AccountsError: the file could not be opened."""
        if self._quotas is None:
            raise AccountsError(self._error)
        return self._quotas

    async def close_store(self) -> None:
        if self._quotas is not None:
            quotas, self._quotas = self._quotas, None
            await quotas.close()
        await super().close_store()
        await self._auditing.close()
