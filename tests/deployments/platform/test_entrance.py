"""Who enters the application when, in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from deployments.platform.entrance import MOST_SENDER_BYTES, Entrance, sender_of


async def entered(senders: Iterable[bytes], entrance: Entrance) -> list[tuple[bytes, int]]:
    """Who entered, with the turn of the loop, counted from the first: all ask in one turn."""
    loop = asyncio.get_running_loop()
    turn = 0
    ended = False
    order: list[tuple[bytes, int]] = []

    def count() -> None:
        nonlocal turn
        turn += 1
        if not ended:
            loop.call_soon(count)

    async def enter(sender: bytes) -> None:
        await entrance.turn(sender)
        order.append((sender, turn))

    requests = [asyncio.ensure_future(enter(sender)) for sender in senders]
    loop.call_soon(count)
    await asyncio.gather(*requests)
    ended = True
    return order


async def test_no_two_requests_enter_in_one_turn() -> None:
    order = await entered([b"a"] * 20, Entrance())
    turns = [turn for _, turn in order]
    assert len(set(turns)) == 20
    assert turns[-1] - turns[0] <= 21, "nor is a turn lost"


async def test_a_request_alone_enters_in_the_turn_in_which_it_arrives() -> None:
    entrance = Entrance()
    for _ in range(3):
        assert [turn for _, turn in await entered([b"a"], entrance)] == [0]
        await asyncio.sleep(0.001)


async def test_one_sender_s_crowd_does_not_hold_up_another_sender() -> None:
    order = [sender for sender, _ in await entered([b"noisy"] * 100 + [b"quiet"] * 2, Entrance())]
    assert order.index(b"quiet") <= 2
    assert [sender for sender in order if sender == b"quiet"] == [b"quiet"] * 2
    assert len(order) == 102


async def test_each_sender_s_requests_keep_their_order() -> None:
    entrance = Entrance()
    order: list[int] = []

    async def enter(number: int) -> None:
        await entrance.turn(b"a" if number % 3 else b"b")
        order.append(number)

    await asyncio.gather(*(enter(number) for number in range(30)))
    assert [number for number in order if number % 3] == [number for number in range(30) if number % 3]
    assert sorted(order) == list(range(30))


async def test_a_request_whose_client_left_takes_no_turn() -> None:
    entrance = Entrance()
    await entrance.turn(b"first")
    left = [asyncio.ensure_future(entrance.turn(b"left")) for _ in range(50)]
    stays = asyncio.ensure_future(entrance.turn(b"stays"))
    await asyncio.sleep(0)
    for each in left:
        each.cancel()
    await asyncio.wait_for(stays, 1)
    await asyncio.gather(*left, return_exceptions=True)
    assert [turn for _, turn in await entered([b"a"], entrance)] == [0], "nobody is left behind"


async def test_the_credential_names_the_sender() -> None:
    headers = [(b"host", b"h"), (b"authorization", b"Bearer x" * 100)]
    assert sender_of(headers) == (b"Bearer x" * 100)[:MOST_SENDER_BYTES]
    assert sender_of([(b"x-api-key", b"k")]) == b"k"
    assert sender_of([(b"host", b"h")]) == b""
