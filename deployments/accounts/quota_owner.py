"""The owner's side of quotas: the ledger, in memory, and what has to outlive it, in the file.

A gateway's call waits for no disk: its report is on disk a moment later, and the gateway keeps the report
until the owner confirms that."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from contextvars import Context
from uuid import uuid4

from deployments.accounts.store.base import AccountStore
from serve_app.accounts.default_limits import table_of
from serve_app.accounts.keys import AccountsError
from serve_app.quotas.ledger import Ledger
from serve_app.quotas.limits import Limit
from serve_app.quotas.messages import LeaseCall, LeaseReply, LimitChanges, LimitPage, ShownLimit, Used
from serve_app.settings import AccountSettings

WRITE_S = 0.1
"""Between two writes of what was used."""

logger = logging.getLogger("ray.serve")


class QuotaOwner:
    """Made inside a running event loop, with an open store; ``close`` ends it."""

    def __init__(self, store: AccountStore, settings: AccountSettings) -> None:
        self._store = store
        self._table = table_of(settings)
        self._ledger = Ledger(self._table, uuid4().hex, time.monotonic())
        self._version = 0
        self._problem = ""
        self._closing = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Raises: AccountsError."""
        limits, self._version = await self._store.limits()
        self._table.replace(limits)
        totals, applied = await self._store.used(time.time())
        self._ledger.restore(totals, applied, time.monotonic())
        self._writing = asyncio.get_running_loop().create_task(self._write_forever(), context=Context())

    async def close(self) -> None:
        """Writes what is not written yet, after a write that has begun."""
        self._closing.set()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._write()

    def lease(self, call: LeaseCall) -> LeaseReply:
        return self._ledger.call(call, time.monotonic(), time.time())

    async def changes(self, since: int) -> tuple[LimitChanges | None, bool]:
        """Limits that a gateway does not know, and whether there are more. Raises: AccountsError."""
        if since == self._version:
            return None, False
        return await self._store.limit_changes(since if since < self._version else 0)

    async def put(self, limit: Limit) -> int:
        """Returns the number of the change. Raises: AccountsError: nothing has changed."""
        version = await self._store.put_limit(limit)
        self._table.put([limit])
        self._version = max(self._version, version)
        return version

    async def remove(self, scope: str) -> int | None:
        """The same; ``None``: there was none. Raises: AccountsError: nothing has changed."""
        version = await self._store.remove_limit(scope)
        if version is None:
            return None
        self._table.remove(scope)
        self._version = max(self._version, version)
        return version

    def page(self, begins: str, after: str, most: int) -> LimitPage:
        """Limits of scopes that begin so, from behind ``after``."""
        scopes = sorted(scope for scope in self._table.own if scope.startswith(begins) and scope > after)
        shown = tuple([self._shown(self._table.own[scope]) for scope in scopes[:most]])
        return LimitPage(shown, len(scopes) > most)

    def _shown(self, limit: Limit) -> ShownLimit:
        kind, _, name = limit.scope.partition(":")
        tenant = name if kind == "tenant" else name.partition("/")[0] if kind in {"user", "use"} else ""
        found = self._ledger.used(limit.scope, tenant, time.monotonic(), time.time())
        bounds = self._table.of(limit.scope)
        uses = {bound.value: Used(bounds[bound], used, held) for bound, (used, held) in found.items()}
        return ShownLimit(limit, uses)

    async def _write_forever(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(WRITE_S):
                    await self._closing.wait()
            await self._write()

    async def _write(self) -> None:
        """A file that cannot be written stops nothing: gateways keep their reports meanwhile."""
        totals, applied = self._ledger.unwritten()
        if not totals and not applied:
            return
        try:
            await self._store.write_used(totals, applied, time.time())
        except AccountsError as error:
            self._ledger.not_written(totals)
            if str(error) != self._problem:
                logger.error("what was used is not on disk: %s", error)
            self._problem = str(error)
        except BaseException:  # nobody waited to the end: it may be written, and may be so again
            self._ledger.not_written(totals)
            raise
        else:
            self._ledger.written(applied)
            self._problem = ""
