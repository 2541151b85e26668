"""Whose request begins when, in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

import pytest

from deployments.gateway.request.entrance import (
    FORGET_S,
    MOST_SENDERS,
    MOST_STRANGERS,
    MOST_WAITING,
    SELDOM_S,
    STRANGERS,
    TURNS_BETWEEN,
    Entrance,
    Senders,
)

NOISY, QUIET, OTHER = "noisy", "quiet", "other"


class Door:
    """An entrance whose clock stands still until it is told otherwise. ``answered``: tenants whose requests
    run."""

    def __init__(self) -> None:
        self.now = 100.0
        self.answered: set[str] = set()
        self.entrance = Entrance(lambda: self.answered, lambda: self.now)

    async def ask(self, tenants: Iterable[str]) -> list[tuple[str, int]]:
        """Whose requests began, with the turn of the loop, counted from the first: all ask in one turn."""
        loop = asyncio.get_running_loop()
        turn, ended = 0, False
        order: list[tuple[str, int]] = []

        def count() -> None:
            nonlocal turn
            turn += 1
            if not ended:
                loop.call_soon(count)

        async def enter(tenant: str) -> None:
            await self.entrance.turn(tenant)
            order.append((tenant, turn))

        requests = [asyncio.ensure_future(enter(tenant)) for tenant in tenants]
        loop.call_soon(count)
        await asyncio.wait_for(asyncio.gather(*requests), 10)
        ended = True
        return order

    async def knows(self, *tenants: str) -> Door:
        """These have each sent a request, long enough ago."""
        for tenant in tenants:
            await self.entrance.turn(tenant)
        self.now += 2 * SELDOM_S
        return self


@pytest.fixture
async def door() -> Door:
    return await Door().knows(NOISY, QUIET)


async def test_a_crowd_begins_one_by_one_with_turns_between(door: Door) -> None:
    turns = [turn for _, turn in await door.ask([NOISY] * 20)]
    assert turns[0] == 0
    gaps = [after - before for before, after in pairwise(turns)]
    assert min(gaps) > TURNS_BETWEEN
    assert max(gaps) <= TURNS_BETWEEN + 2, "and no turn is lost"


async def test_another_tenant_does_not_wait_for_the_crowd(door: Door) -> None:
    order = await door.ask([NOISY] * 100 + [QUIET])
    assert dict(order)[QUIET] == 0
    assert len(order) == 101


async def test_crowds_take_turns(door: Door) -> None:
    order = [tenant for tenant, _ in await door.ask([NOISY] * 50 + [QUIET] * 5)]
    assert max(place for place, tenant in enumerate(order) if tenant == QUIET) <= 10


@pytest.mark.parametrize("others_left", [False, True])
async def test_a_tenant_who_is_alone_waits_for_nobody(others_left: bool) -> None:
    door = await Door().knows(*([QUIET] if others_left else []), NOISY)
    door.now += FORGET_S + 1
    assert [turn for _, turn in await door.ask([NOISY] * 100)] == [0] * 100


async def test_a_tenant_whose_stream_runs_is_there_however_long_ago_it_asked() -> None:
    door = await Door().knows(NOISY)
    door.now += FORGET_S + 1
    door.answered = {QUIET, NOISY}
    assert len({turn for _, turn in await door.ask([NOISY] * 10)}) == 10


async def test_requests_now_and_then_begin_at_once(door: Door) -> None:
    for _ in range(5):
        assert await door.ask([NOISY]) == [(NOISY, 0)]
        door.now += 2 * SELDOM_S


@pytest.mark.parametrize("others_leave", [False, True])
async def test_each_tenants_requests_keep_their_order(door: Door, others_leave: bool) -> None:
    order: list[int] = []

    async def enter(number: int) -> None:
        await door.entrance.turn(NOISY)
        order.append(number)

    first = [asyncio.ensure_future(enter(number)) for number in range(15)]
    await asyncio.sleep(0)
    if others_leave:
        door.now += FORGET_S + 1
    later = [asyncio.ensure_future(enter(number)) for number in range(15, 30)]
    await asyncio.wait_for(asyncio.gather(*first, *later), 10)
    assert order == list(range(30))


async def test_who_waits_is_counted_and_for_how_long(door: Door) -> None:
    waiting = [asyncio.ensure_future(door.entrance.turn(NOISY)) for _ in range(4)]
    await asyncio.sleep(0)
    door.now += 0.5
    assert (door.entrance.waiting(), door.entrance.longest_s()) == (3, 0.5)
    assert await asyncio.gather(*waiting) == [False, True, True, True]
    assert (door.entrance.waiting(), door.entrance.longest_s()) == (0, 0.0)


@pytest.mark.parametrize(("tenant", "most"), [(NOISY, MOST_WAITING), (STRANGERS, MOST_STRANGERS)])
async def test_no_more_wait_than_may(door: Door, tenant: str, most: int) -> None:
    await door.entrance.turn(tenant)
    waiting = [asyncio.ensure_future(door.entrance.turn(tenant)) for _ in range(most)]
    await asyncio.sleep(0)
    assert door.entrance.waiting() == (most if tenant else 0), "strangers are no demand"
    assert await door.entrance.turn(tenant) is False
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_request_that_is_cancelled_takes_no_turn(door: Door) -> None:
    await door.entrance.turn(NOISY)
    left = [asyncio.ensure_future(door.entrance.turn(NOISY)) for _ in range(50)]
    stays = asyncio.ensure_future(door.entrance.turn(NOISY))
    await asyncio.sleep(0)
    for each in left:
        each.cancel()
    for _ in range(TURNS_BETWEEN + 4):
        await asyncio.sleep(0)
    assert stays.done()
    await asyncio.gather(*left, return_exceptions=True)
    door.now += 2 * SELDOM_S
    for _ in range(TURNS_BETWEEN + 4):
        await asyncio.sleep(0)
    assert await door.ask([NOISY]) == [(NOISY, 0)], "nobody is left behind"


def test_a_sender_is_who_the_gate_has_let_in_with_the_same_credentials() -> None:
    senders = Senders()
    sent = [(b"host", b"h"), (b"authorization", b"Bearer k")]
    assert senders.place(sent) == STRANGERS
    senders.learn({"host": "h", "authorization": "Bearer k"}, "acme")
    assert senders.place(sent) == "acme"
    assert senders.place([(b"x-api-key", b"Bearer k")]) == STRANGERS
    assert senders.place([(b"x-api-key", b"k")]) == "acme"
    senders.learn({"x-api-key": "ké"}, "acme")
    assert senders.place([(b"x-api-key", "ké".encode("latin-1"))]) == "acme"


def test_a_key_has_one_place_however_it_is_written() -> None:
    senders = Senders()
    senders.learn({"authorization": "Bearer k"}, "acme")
    for written in (b"bearer k", b"BEARER   k ", b"Bearer k"):
        for number in range(3):
            assert senders.place([(b"authorization", written), (b"x-api-key", b"%d" % number)]) == "acme"


def test_a_request_without_a_credential_teaches_nothing() -> None:
    senders = Senders()
    senders.learn({"cookie": "session"}, "acme")
    assert senders.place([(b"cookie", b"session")]) == STRANGERS
    assert senders.place([(b"authorization", b"Bearer ")]) == STRANGERS


def test_no_more_senders_are_known_than_may() -> None:
    senders = Senders()
    for number in range(MOST_SENDERS + 1):
        senders.learn({"authorization": f"Bearer {number}"}, "acme")
    assert senders.place([(b"authorization", b"Bearer 0")]) == STRANGERS
    assert senders.place([(b"authorization", b"Bearer 1")]) == "acme"
