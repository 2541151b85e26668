"""The Accounts deployment: the calls that gateways make, each with the time of this process's clock.

There is one replica, because the file has one owner. It keeps nothing in memory that is not in the file: when
it is killed, Serve starts another, and gateways repeat what was not answered.
"""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from deployments.accounts.auditing import Auditing
from deployments.accounts.quota_owner import QuotaOwner
from deployments.accounts.store.base import AccountStore
from deployments.accounts.store.registry import folder_of, open_store
from deployments.platform.serve import node_address
from deployments.platform.telemetry import call_tracer
from deployments.wire.direct_calls import DirectCalls
from serve_app.accounts.calls import ACCOUNTS
from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import AccountsError, Kept, KeyPage, KeyQuery, ManagedKey
from serve_app.audit import AuditEvent, AuditPage, Head
from serve_app.quotas.limits import Limit
from serve_app.quotas.messages import LeaseCall, LeaseReply, LimitPage
from serve_app.settings import AccountSettings
from serve_app.settings.network import ANY_PORT
from serve_app.usage import UsagePage, UsageQuery
from serve_app.wire.private_address import PrivateAddress

REOPEN_PERIOD_S = 5.0
SWEEP_PERIOD_S = 600.0

logger = logging.getLogger("ray.serve")


class Accounts:
    """If the file cannot be opened, the application keeps running with the keys that gateways know. It has
    many methods because Serve calls one class and gateways have that many calls."""

    async def __init__(self, settings: AccountSettings, *, ports: range = ANY_PORT) -> None:  # type: ignore[misc]  # Serve awaits it
        self._settings = settings
        self._ports = ports
        self._opened: AccountStore | None = None
        self._quotas: QuotaOwner | None = None
        self._error = ""
        self._direct: DirectCalls | None = None
        self._auditing = Auditing(folder_of(settings), settings)
        await self._open()
        self._caring = asyncio.get_running_loop().create_task(self._care())

    async def address(self) -> PrivateAddress:
        """The address to which gateways send their calls."""
        if self._direct is None:
            methods = {name: getattr(self, name) for name in ACCOUNTS}
            self._direct = DirectCalls(
                ACCOUNTS, methods, node_address(), call_tracer("accounts"), ports=self._ports
            )
        return self._direct.address

    async def exchange(self, report: Report) -> Changes:
        changes = await self.store.exchange(report, time.time())
        knows = report.store == changes.store
        limits, more = await self.quotas.changes(report.limits_version if knows else 0)
        return msgspec.structs.replace(changes, limits=limits, more=changes.more or more)

    async def lease(self, call: LeaseCall) -> LeaseReply:
        return self.quotas.lease(call)

    async def set_limit(self, limit: Limit) -> None:
        await self.quotas.put(limit)

    async def remove_limit(self, scope: str) -> bool:
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

    @property
    def store(self) -> AccountStore:
        """Raises: AccountsError: the file could not be opened."""
        if self._opened is None:
            raise AccountsError(self._error)
        return self._opened

    async def _open(self) -> None:
        """A failure is logged once for each reason."""
        try:
            store = await asyncio.to_thread(open_store, self._settings)
            quotas = QuotaOwner(store, self._settings)
            await quotas.begin()
            self._opened, self._quotas = store, quotas
        except AccountsError as error:
            if str(error) != self._error:
                logger.error("accounts are not kept: %s", error)
            self._error = str(error)

    async def _care(self) -> None:
        """Open the file, if it could not be opened; then remove now and then what is no longer kept."""
        while True:
            if self._opened is None:
                await asyncio.sleep(REOPEN_PERIOD_S)
                await self._open()
                continue
            try:
                await self._opened.sweep(time.time())
            except AccountsError as error:
                logger.warning("old usage was not removed: %s", error)
            await asyncio.sleep(SWEEP_PERIOD_S)

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Serve calls this through ``__del__``."""
        self._caring.cancel()
        if self._direct is not None:
            await self._direct.stop()
            self._direct = None
        if self._quotas is not None:
            quotas, self._quotas = self._quotas, None
            await quotas.close()
        if self._opened is not None:
            store, self._opened = self._opened, None
            self._error = "closed"
            await store.close()
        await self._auditing.close()
