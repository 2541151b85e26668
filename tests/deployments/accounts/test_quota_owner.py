"""The owner of limits: what it has counted outlives it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from support.accounts import Opened

from deployments.accounts.quota_owner import QuotaOwner
from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.quotas.ledger import Total
from serve_app.quotas.limits import Bound, Limit
from serve_app.quotas.messages import Ask, Batch, Held, LeaseCall, LeaseReply, Spent
from serve_app.settings import AccountSettings

SCOPE, TENANT = "tenant:acme", "acme"
DAY_S = 86_400.0
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


async def writing(folder: Path) -> tuple[SlowAccounts, QuotaOwner]:
    """An owner whose write of 700 used tokens has begun, and waits for the disk."""
    store = SlowAccounts(folder)
    owner = QuotaOwner(store, SETTINGS)
    await owner.begin()
    await owner.put(Limit(SCOPE, tokens_per_day=1000))
    spent(owner, 700)
    await store.begun.wait()
    return store, owner


async def test_an_owner_that_ends_while_a_write_waits_for_the_disk_loses_nothing(tmp_path: Path) -> None:
    store, owner = await writing(tmp_path)
    await asyncio.gather(owner.close(), store.goes_on())
    await store.close()
    async with owner_of(tmp_path) as successor:
        assert used(successor) == 700
        spent(successor, 700, call=2)
        assert used(successor) == 700, "its gateway repeats it"


async def test_what_a_write_that_was_broken_off_had_is_written_by_the_next(tmp_path: Path) -> None:
    store, owner = await writing(tmp_path)
    closing = asyncio.ensure_future(owner.close())
    await asyncio.gather(closing, given_up(closing), return_exceptions=True)
    assert closing.cancelled()
    await asyncio.gather(owner.close(), store.goes_on())
    await store.close()
    async with owner_of(tmp_path) as successor:
        assert used(successor) == 700


async def test_a_report_whose_answer_was_lost_counts_once_after_days_without_an_owner(tmp_path: Path) -> None:
    async with owner_of(tmp_path) as owner:
        await owner.put(Limit(SCOPE, tokens_per_day=1000))
        spent(owner, 100)
    store = SqliteAccounts(tmp_path, SETTINGS)
    await store.write_used([], {"gateway": 1}, time.time() - 5 * DAY_S)  # as if it had come then
    await store.close()
    async with owner_of(tmp_path) as successor:
        spent(successor, 100, call=2)
        assert used(successor) == 100


async def test_a_new_owner_waits_for_gateways_that_hold_something_and_used_nothing(tmp_path: Path) -> None:
    async with owner_of(tmp_path) as owner:
        await owner.put(Limit(SCOPE, parallel_requests=4))
        assert permits(owner, "first").grants[0].amount == 4
    async with owner_of(tmp_path) as successor:
        [grant] = permits(successor, "second").grants
        assert grant.amount == 0
        assert grant.others, "the request is not refused: its gateway asks again"
        held = [Held(SCOPE, Bound.PARALLEL, TENANT, 0, 4)]
        successor.lease(LeaseCall("first", 2, "", True, held, [], [], []))
        assert permits(successor, "second", call=2).grants[0].amount == 0


def permits(owner: QuotaOwner, gateway: str, call: int = 1) -> LeaseReply:
    ask = Ask(SCOPE, Bound.PARALLEL, TENANT, 4, 4, 4)
    return owner.lease(LeaseCall(gateway, call, "", True, [], [], [], [ask]))


async def test_gateways_that_ended_long_ago_are_forgotten(tmp_path: Path, opened: Opened) -> None:
    now = time.time()
    async with opened(tmp_path) as store:
        await store.write_used([], {"old": 3}, now - 40 * DAY_S)
        await store.write_used([], {"young": 4}, now - 5 * DAY_S)
        await store.sweep(now)
        assert (await store.used(now))[1] == {"young": 4}
