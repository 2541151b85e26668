"""Passes: none waits while nothing runs, none is held up by a large call, none loses a text."""

from __future__ import annotations

import asyncio
import time

import pytest

from deployments.embedder import Batches


class Held:
    """An encoder whose passes end when they are let go. A result is its text in capitals."""

    def __init__(self) -> None:
        self.passes: list[list[str]] = []
        self.begun = asyncio.Condition()
        self.free = asyncio.Semaphore(0)

    async def __call__(self, texts: list[str]) -> list[str]:
        async with self.begun:
            self.passes.append(texts)
            self.begun.notify_all()
        await self.free.acquire()
        if "bad" in texts:
            raise RuntimeError("no vector")
        return [text.upper() for text in texts]

    async def until_begun(self, count: int) -> None:
        async with self.begun:
            await self.begun.wait_for(lambda: len(self.passes) >= count)

    def let_go(self, count: int) -> None:
        for _ in range(count):
            self.free.release()


async def test_a_text_alone_begins_at_once_and_those_that_come_meanwhile_go_together() -> None:
    encode = Held()
    batches = Batches(encode, most=8)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(batches.run(["a"]))
        await encode.until_begun(1)
        others = [group.create_task(batches.run([text])) for text in "bcd"]
        encode.let_go(2)
    assert encode.passes == [["a"], ["b", "c", "d"]]
    assert [first.result(), *(other.result() for other in others)] == [["A"], ["B"], ["C"], ["D"]]


async def test_a_call_of_one_text_does_not_wait_for_a_call_of_many() -> None:
    encode = Held()
    batches = Batches(encode, most=2)
    many = [f"m{number}" for number in range(7)]
    async with asyncio.TaskGroup() as group:
        large = group.create_task(batches.run(many))
        await encode.until_begun(1)
        small = group.create_task(batches.run(["s"]))
        await asyncio.sleep(0)
        encode.let_go(5)
    assert encode.passes == [["m0", "m1"], ["m2", "s"], ["m3", "m4"], ["m5", "m6"]]
    assert small.result() == ["S"]
    assert large.result() == [text.upper() for text in many]


async def test_a_failed_pass_fails_its_own_calls_alone() -> None:
    encode = Held()
    batches = Batches(encode, most=2)
    calls = [["a", "bad", "never"], ["b"], ["c"]]
    tasks = [asyncio.create_task(batches.run(call)) for call in calls]
    encode.let_go(9)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], RuntimeError)
    assert found[1] == ["B"]
    assert "never" not in [text for texts in encode.passes for text in texts]
    assert await batches.run(["again"]) == ["AGAIN"]


async def test_a_caller_that_left_is_not_computed_for() -> None:
    encode = Held()
    batches = Batches(encode, most=1)
    first = asyncio.create_task(batches.run(["a"]))
    await encode.until_begun(1)
    gone, stays = asyncio.create_task(batches.run(["gone"])), asyncio.create_task(batches.run(["stays"]))
    await asyncio.sleep(0)
    gone.cancel()
    encode.let_go(2)
    assert await first == ["A"]
    assert await stays == ["STAYS"]
    assert encode.passes == [["a"], ["stays"]]


async def test_a_caller_that_leaves_in_mid_pass_harms_nobody() -> None:
    encode = Held()
    batches = Batches(encode, most=2)
    gone, stays = asyncio.create_task(batches.run(["gone"])), asyncio.create_task(batches.run(["stays"]))
    await encode.until_begun(1)
    gone.cancel()
    encode.let_go(1)
    assert await stays == ["STAYS"]
    assert encode.passes == [["gone", "stays"]]


async def test_no_texts_are_no_pass() -> None:
    encode = Held()
    assert await Batches(encode, most=2).run([]) == []
    assert encode.passes == []


@pytest.mark.parametrize("wait_s", [0.02])
async def test_a_text_waits_for_company_where_that_is_asked_for(wait_s: float) -> None:
    encode = Held()
    encode.let_go(1)
    started = time.monotonic()
    await Batches(encode, most=8, wait_s=wait_s).run(["a"])
    assert time.monotonic() - started >= wait_s - 0.001  # the loop's clock is as coarse as that
