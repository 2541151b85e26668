"""The owner of limits: what it has counted outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from deployments.accounts.quota_owner import QuotaOwner
from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.quotas.ledger import Total
from serve_app.quotas.limits import Bound, Limit
from serve_app.quotas.messages import Batch, LeaseCall, LeaseReply, Spent
from serve_app.settings import AccountSettings

SCOPE, TENANT = "tenant:acme", "acme"
SETTINGS = AccountSettings(min_free_disk_bytes=0)


class SlowAccounts(SqliteAccounts):
    """A write of what was used waits until it is let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SETTINGS)
        self.begun, self.let = asyncio.Event(), asyncio.Event()

    async def write_used(self, totals: Sequence[Total], applied: Mapping[str, int], now: float) -> None:
        self.begun.set()
        await self.let.wait()
        await super().write_used(totals, applied, now)

    async def goes_on(self) -> None:
        self.let.set()


async def given_up(task: asyncio.Task[None]) -> None:
    task.cancel()


@asynccontextmanager
async def owner_of(folder: Path) -> AsyncIterator[QuotaOwner]:
    store = SqliteAccounts(folder, SETTINGS)
    owner = QuotaOwner(store, SETTINGS)
    await owner.begin()
    try:
        yield owner
    finally:
        await owner.close()
        await store.close()


def spent(owner: QuotaOwner, amount: int, call: int = 1) -> LeaseReply:
    """The first batch of a gateway that the owner does not know."""
    batch = Batch(1, [Spent(SCOPE, Bound.TOKENS_DAY, TENANT, amount, 0.0)])
    return owner.lease(LeaseCall("gateway", call, "", True, [], [batch], [], []))


def used(owner: QuotaOwner, bound: Bound = Bound.TOKENS_DAY) -> int:
    [shown] = owner.page(SCOPE, "", 1).limits
    return shown.uses[bound.value].used


async def test_an_owner_that_ends_while_a_write_waits_for_the_disk_loses_nothing(tmp_path: Path) -> None:
    store = SlowAccounts(tmp_path)
    owner = QuotaOwner(store, SETTINGS)
    await owner.begin()
    await owner.put(Limit(SCOPE, tokens_per_day=1000))
    spent(owner, 700)
    await store.begun.wait()
    await asyncio.gather(owner.close(), store.goes_on())
    await store.close()
    async with owner_of(tmp_path) as successor:
        assert used(successor) == 700
        spent(successor, 700, call=2)
        assert used(successor) == 700, "its gateway repeats it"


async def test_what_a_write_that_was_broken_off_had_is_written_by_the_next(tmp_path: Path) -> None:
    store = SlowAccounts(tmp_path)
    owner = QuotaOwner(store, SETTINGS)
    await owner.begin()
    await owner.put(Limit(SCOPE, tokens_per_day=1000))
    spent(owner, 700)
    await store.begun.wait()
    closing = asyncio.ensure_future(owner.close())
    await asyncio.gather(closing, given_up(closing), return_exceptions=True)
    assert closing.cancelled()
    await asyncio.gather(owner.close(), store.goes_on())
    await store.close()
    async with owner_of(tmp_path) as successor:
        assert used(successor) == 700
