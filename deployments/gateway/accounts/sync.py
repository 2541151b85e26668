"""Keeps one gateway and the owner of the accounts in step: one exchange every quarter of a second.

While the owner is away, the gateway goes on with what it knows.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from contextvars import Context
from uuid import uuid4

from deployments.gateway.accounts.client import AccountsClient
from deployments.gateway.accounts.usage import UsageReports
from serve_app.accounts.exchange import PERIOD_S, Changes, Report
from serve_app.accounts.refused import RefusedUsers
from serve_app.errors import AccountsUnavailable
from serve_app.quotas.limits import Limit, LimitTable
from serve_app.quotas.messages import LimitChanges
from serve_app.request.auth import KeyRecord, ManagedKeys

LAST_REPORT_S = 1.0
"""How long a gateway that ends tries to report what it has counted."""

logger = logging.getLogger("ray.serve")


class AccountSync:
    """Made inside a running event loop; ``stop`` ends it. ``keys``, ``limits`` and ``refused`` are what it
    keeps up to date. What a report holds besides is gathered in ``_report``, and given to its owner in
    ``_take``. It is one class because all of it is one exchange."""

    def __init__(
        self,
        client: AccountsClient,
        keys: ManagedKeys,
        usage: UsageReports,
        limits: LimitTable,
        *,
        refused: RefusedUsers,
        period_s: float = PERIOD_S,
    ) -> None:
        self._client = client
        self._keys = keys
        self._usage = usage
        self.limits, self._limits_version = limits, 0
        self._refused = refused
        self._period_s = period_s
        self.gateway = uuid4().hex
        self._seq = 0
        self._pending: Report | None = None
        self._store, self._keys_version, self._keys_forgotten = "", 0, 0
        self._fresh: dict[str, KeyRecord] | None = None
        self._problem = ""
        self._begun = asyncio.Event()
        self._running = asyncio.get_running_loop().create_task(self._forever(), context=Context())

    async def begun(self, timeout_s: float) -> None:
        """All keys are known, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._begun.wait()
        except TimeoutError:
            logger.warning("the keys made at run time are not known yet: %s", self._problem or "no answer")

    async def stop(self) -> None:
        """What was counted until now is reported, if its owner answers."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        with suppress(AccountsUnavailable, TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                if self._pending is not None and self._pending.is_empty:
                    self._pending = None
                while not self._next().is_empty:
                    await self.exchange()

    def _next(self) -> Report:
        """The report that is on its way, or else the next one."""
        if self._pending is None:
            self._seq += 1
            self._pending = self._report()
        return self._pending

    async def exchange(self) -> bool:
        """One exchange; whether the next should follow at once.

        Raises:
            AccountsUnavailable: what was reported is reported again.
        """
        changes: Changes = await self._client.call_once("exchange", self._next())
        self._pending = None
        self._take(changes)
        return changes.more

    async def _forever(self) -> None:
        """No failure ends it: without it, a revoked key would go on working."""
        while True:
            pause_s = self._period_s
            try:
                if await self.exchange():
                    pause_s = 0.0
                self._complain("")
            except AccountsUnavailable as error:
                self._complain(error.reason)
            except Exception:
                logger.exception("the exchange with the owner of the accounts failed")
            await asyncio.sleep(pause_s)

    def _report(self) -> Report:
        return Report(
            gateway=self.gateway,
            seq=self._seq,
            store=self._store,
            keys_version=self._keys_version,
            keys_forgotten=self._keys_forgotten,
            usage=tuple(self._usage.rows()),
            limits_version=self._limits_version,
            refused=self._refused.version,
        )

    def _take(self, changes: Changes) -> None:
        self._take_keys(changes)
        if changes.limits is not None:
            self._take_limits(changes.limits)
        if changes.refused is not None:
            self._refused.replace(changes.refused)

    def has_set(self, limit: Limit, version: int | None) -> None:
        """The owner has kept it. It is in force here at once, unless a newer change has come already. An
        older owner names no ``version``."""
        if version is None or version > self._limits_version:
            self.limits.put([limit])

    def has_removed(self, scope: str, version: int | None) -> None:
        if version is None or version > self._limits_version:
            self.limits.remove(scope)

    def _take_limits(self, changes: LimitChanges) -> None:
        self._limits_version = changes.version
        if changes.fresh:
            self.limits.replace(())
        self.limits.put(changes.limits)
        for scope in changes.removed:
            self.limits.remove(scope)

    def _take_keys(self, changes: Changes) -> None:
        """Keys that are all read again, page by page, replace the known ones together: none is missing in
        between."""
        self._store, self._keys_version = changes.store, changes.keys_version
        self._keys_forgotten = changes.keys_forgotten
        if changes.fresh:
            self._fresh = {}
        if self._fresh is None:
            self._keys.change(changes.keys, changes.revoked)
            return
        self._fresh |= {record.id: record for record in changes.keys}
        for key_id in changes.revoked:
            self._fresh.pop(key_id, None)
        if not changes.more:
            self._keys.replace(self._fresh)
            self._fresh = None
            self._begun.set()

    def _complain(self, problem: str) -> None:
        """Log each problem once, not at every exchange."""
        if problem and problem != self._problem:
            logger.error("keys, limits and usage stay as they are known here: %s", problem)
        if self._problem and not problem:
            logger.info("the owner of the accounts answers again")
        self._problem = problem
