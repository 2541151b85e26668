"""Who enters the application when, in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

import pytest

from deployments.platform.entrance import (
    FORGET_S,
    MOST_SENDER_BYTES,
    SELDOM_S,
    TURNS_BETWEEN,
    Entrance,
    sender_of,
)

NOISY, QUIET, OTHER = b"noisy", b"quiet", b"other"


class Door:
    """An entrance whose clock stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 100.0
        self.entrance = Entrance(lambda: self.now)

    async def ask(self, senders: Iterable[bytes]) -> list[tuple[bytes, int]]:
        """Who entered, with the turn of the loop, counted from the first: all ask in one turn."""
        loop = asyncio.get_running_loop()
        turn, ended = 0, False
        order: list[tuple[bytes, int]] = []

        def count() -> None:
            nonlocal turn
            turn += 1
            if not ended:
                loop.call_soon(count)

        async def enter(sender: bytes) -> None:
            await self.entrance.turn(sender)
            order.append((sender, turn))

        requests = [asyncio.ensure_future(enter(sender)) for sender in senders]
        loop.call_soon(count)
        await asyncio.wait_for(asyncio.gather(*requests), 10)
        ended = True
        return order

    async def knows(self, *senders: bytes) -> Door:
        """These senders have each sent a request, long enough ago."""
        for sender in senders:
            await self.entrance.turn(sender)
        self.now += 2 * SELDOM_S
        return self


@pytest.fixture
async def door() -> Door:
    return await Door().knows(NOISY, QUIET)


async def test_a_crowd_enters_one_by_one_with_turns_between(door: Door) -> None:
    turns = [turn for _, turn in await door.ask([NOISY] * 20)]
    assert turns[0] == 0
    gaps = [after - before for before, after in pairwise(turns)]
    assert min(gaps) > TURNS_BETWEEN
    assert max(gaps) <= TURNS_BETWEEN + 2, "and no turn is lost"


async def test_another_sender_does_not_wait_for_the_crowd(door: Door) -> None:
    order = await door.ask([NOISY] * 100 + [QUIET])
    assert dict(order)[QUIET] == 0
    assert len(order) == 101


async def test_crowds_take_turns(door: Door) -> None:
    order = [sender for sender, _ in await door.ask([NOISY] * 50 + [QUIET] * 5)]
    assert max(place for place, sender in enumerate(order) if sender == QUIET) <= 10


@pytest.mark.parametrize("wait_s", [0.0, FORGET_S + 1])
async def test_a_sender_who_is_alone_waits_for_nobody(wait_s: float) -> None:
    door = await Door().knows(*([NOISY] if not wait_s else [QUIET, NOISY]))
    door.now += wait_s
    assert [turn for _, turn in await door.ask([NOISY] * 100)] == [0] * 100


async def test_requests_now_and_then_enter_at_once(door: Door) -> None:
    for _ in range(5):
        assert await door.ask([NOISY]) == [(NOISY, 0)]
        door.now += 2 * SELDOM_S


async def test_each_sender_s_requests_keep_their_order(door: Door) -> None:
    order: list[int] = []

    async def enter(number: int) -> None:
        await door.entrance.turn(NOISY if number % 3 else OTHER)
        order.append(number)

    await asyncio.gather(*(enter(number) for number in range(30)))
    assert [number for number in order if number % 3] == [number for number in range(30) if number % 3]
    assert sorted(order) == list(range(30))


async def test_a_request_whose_client_left_takes_no_turn(door: Door) -> None:
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


async def test_senders_are_forgotten(door: Door) -> None:
    for number in range(1000):
        await door.entrance.turn(b"guessed %d" % number)
    door.now += FORGET_S + 1
    assert [turn for _, turn in await door.ask([NOISY] * 3)] == [0] * 3


async def test_the_credential_names_the_sender() -> None:
    headers = [(b"host", b"h"), (b"authorization", b"Bearer x" * 100)]
    assert sender_of(headers) == (b"Bearer x" * 100)[:MOST_SENDER_BYTES]
    assert sender_of([(b"x-api-key", b"k")]) == b"k"
    assert sender_of([(b"host", b"h")]) == b""
