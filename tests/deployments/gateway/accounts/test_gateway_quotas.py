"""When a gateway reports what was used of limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from deployments.gateway.accounts.gateway_quotas import GatewayQuotas
from serve_app.quotas.ledger import Ledger
from serve_app.quotas.limits import Bound, Limit, LimitTable
from serve_app.quotas.messages import LeaseCall, LeaseReply
from serve_app.usage.prices import Prices

SCOPE, TENANT = "tenant:acme", "acme"


class Owner:
    def __init__(self, table: LimitTable) -> None:
        self.ledger = Ledger(table, "owner", time.monotonic())
        self.told: asyncio.Queue[LeaseCall] = asyncio.Queue()

    async def lease(self, call: LeaseCall) -> LeaseReply:
        self.told.put_nowait(call)
        return self.ledger.call(call, time.monotonic(), time.time())

    async def used(self) -> int:
        """As the next report says."""
        call = await asyncio.wait_for(self.told.get(), 10.0)
        return sum(spent.amount for batch in call.batches for spent in batch.spent)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[GatewayQuotas, Owner]]:
    table = LimitTable({})
    table.put([Limit(SCOPE, tokens_per_minute=1000)])
    owner = Owner(table)
    quotas = GatewayQuotas(owner.lease, table, Prices({}), 0.0)
    yield quotas, owner
    await quotas.stop()


async def test_use_is_reported_by_a_gateway_that_had_nothing_to_report(
    pair: tuple[GatewayQuotas, Owner],
) -> None:
    quotas, owner = pair
    await asyncio.sleep(0)  # it rests from now on
    quotas.spend([(quotas.book.purse(SCOPE, Bound.TOKENS, TENANT), 5)])
    assert await owner.used() == 5


async def test_a_stream_of_minutes_is_reported_at_its_end_where_nothing_else_runs(
    pair: tuple[GatewayQuotas, Owner],
) -> None:
    quotas, owner = pair
    book, begun = quotas.book, time.monotonic() - 300.0
    [taken] = book.take([(book.purse(SCOPE, Bound.TOKENS, TENANT), 0)], begun) or []
    for age_s in (0.0, 0.0, 120.0, 130.0):
        call = book.call(begun + age_s)
        book.apply(call, owner.ledger.call(call, time.monotonic(), time.time()), begun + age_s)
    assert book.is_idle
    await asyncio.sleep(0)  # it rests from now on
    quotas.settle(taken, 500)
    assert await owner.used() == pytest.approx(100, abs=2)
