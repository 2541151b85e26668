"""Of many requests that arrive in one moment, each tenant's few begin in a turn of the loop."""

from __future__ import annotations

import asyncio

import pytest

from deployments.gateway.request.loop_turns import LoopTurns


async def test_a_request_does_not_wait_for_the_many_of_another_tenant_that_came_with_it() -> None:
    turns, begun = LoopTurns(most=3), list[str]()

    async def request(tenant: str, number: int) -> None:
        await turns.wait(tenant)
        begun.append(f"{tenant}{number}")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(request("many", number))
        group.create_task(request("one", 0))
    assert begun.index("one0") == 3
    assert [each for each in begun if each != "one0"] == [f"many{number}" for number in range(50)]


async def test_what_arrives_while_others_wait_is_read_between_their_turns() -> None:
    turns, begun = LoopTurns(most=2), list[str]()
    reading, writing = asyncio.Event(), asyncio.Event()

    async def request(tenant: str) -> None:
        await turns.wait(tenant)
        begun.append(tenant)
        writing.set()

    async def arrives_later() -> None:
        await writing.wait()
        reading.set()
        await request("one")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(arrives_later())
        for _ in range(40):
            group.create_task(request("many"))
    assert reading.is_set()
    assert begun.index("one") <= 6


async def test_requests_whose_clients_left_take_no_turn() -> None:
    turns = LoopTurns(most=1)
    first = asyncio.create_task(turns.wait("a"))
    left = [asyncio.create_task(turns.wait("a")) for _ in range(20)]
    stays = asyncio.create_task(turns.wait("a"))
    await asyncio.sleep(0)
    for task in left:
        task.cancel()
    async with asyncio.timeout(30):
        await first
        await stays
        await asyncio.gather(*left, return_exceptions=True)
    assert all(task.cancelled() for task in left)


@pytest.mark.parametrize("pause", [0, 3])
async def test_a_few_requests_begin_at_once(pause: int) -> None:
    turns = LoopTurns(most=4)
    for _ in range(3):
        await turns.wait("a")
        for _ in range(pause):
            await asyncio.sleep(0)
    assert not turns._waiting
