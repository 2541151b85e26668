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


# ---- several owners ----


async def after_first_pass(batches: Batches[str], encode: Held, calls: list[asyncio.Task[list[str]]]) -> None:
    """A pass runs, and all calls wait behind it."""
    await encode.until_begun(1)
    await asyncio.sleep(0)
    assert not any(call.done() for call in calls)


def pass_of(encode: Held, text: str) -> int:
    """In which pass the text ran; the first is 0."""
    return next(number for number, texts in enumerate(encode.passes) if text in texts)


async def test_an_owners_text_waits_one_pass_however_many_calls_another_has() -> None:
    encode = Held()
    batches = Batches(encode, most=4)
    many = [asyncio.create_task(batches.run([f"m{number}"], "many")) for number in range(200)]
    await after_first_pass(batches, encode, many)
    one = asyncio.create_task(batches.run(["s"], "one"))
    await asyncio.sleep(0)
    encode.let_go(len(many))
    assert await one == ["S"]
    assert pass_of(encode, "s") == 1
    assert await asyncio.gather(*many) == [[f"M{number}"] for number in range(200)]


async def test_owners_get_as_many_texts_as_one_another() -> None:
    encode = Held()
    batches = Batches(encode, most=6)
    first = asyncio.create_task(batches.run(["first"], "a"))
    await encode.until_begun(1)
    calls = [
        asyncio.create_task(batches.run([f"{owner}{number}" for number in range(count)], owner))
        for owner, count in (("a", 9), ("a", 9), ("b", 9), ("c", 1))
    ]
    await asyncio.sleep(0)
    encode.let_go(9)
    await asyncio.gather(first, *calls)
    owners = ["".join(text[0] for text in texts) for texts in encode.passes[1:4]]
    assert owners == ["abcaba", "bababa", "bababa"]


async def test_a_look_up_waits_for_the_running_pass_alone() -> None:
    encode = Held()
    batches = Batches(encode, most=2)
    many = [asyncio.create_task(batches.run(["m"] * 9, owner)) for owner in "abcdefgh"]
    await after_first_pass(batches, encode, many)
    look_up = asyncio.create_task(batches.run(["look"], "z", is_look_up=True))
    await asyncio.sleep(0)
    encode.let_go(99)
    assert await look_up == ["LOOK"]
    assert encode.passes[1] == ["look"]
    await asyncio.gather(*many)


async def test_look_ups_do_not_keep_other_texts_waiting() -> None:
    encode = Held()
    batches = Batches(encode, most=2)
    look_ups = [
        asyncio.create_task(batches.run([f"l{number}"], "many", is_look_up=True)) for number in range(100)
    ]
    await after_first_pass(batches, encode, look_ups)
    other = asyncio.create_task(batches.run(["s", "t", "u"], "one"))
    await asyncio.sleep(0)
    encode.let_go(200)
    assert await other == ["S", "T", "U"]
    assert (encode.passes[1], encode.passes[3]) == (["s", "t"], ["u"])
    await asyncio.gather(*look_ups)


async def test_a_pass_holds_only_so_many_characters() -> None:
    encode = Held()
    encode.let_go(9)
    texts = ["aaaa", "bbbb", "c", "d" * 30, "e"]
    found = await Batches(encode, most=8, most_characters=8).run(texts)
    assert found == [text.upper() for text in texts]
    assert encode.passes == [["aaaa", "bbbb"], ["c"], ["d" * 30], ["e"]]


async def test_long_texts_of_one_owner_hold_up_short_ones_of_another_for_one_pass_each_time() -> None:
    encode = Held()
    batches = Batches(encode, most=8, most_characters=16)
    long = [asyncio.create_task(batches.run([f"{number:040}"], "long")) for number in range(50)]
    await after_first_pass(batches, encode, long)
    short = asyncio.create_task(batches.run(list("abcdefghijklmnop"), "short"))
    await asyncio.sleep(0)
    encode.let_go(60)
    assert await short == list("ABCDEFGHIJKLMNOP")
    assert pass_of(encode, "p") <= 4, "two passes alone"
    await asyncio.gather(*long)


async def test_calls_whose_callers_left_take_no_turn() -> None:
    encode = Held()
    batches = Batches(encode, most=2)
    first = asyncio.create_task(batches.run(["first"], "a"))
    await encode.until_begun(1)
    gone = [asyncio.create_task(batches.run(["gone"], owner)) for owner in "abab"]
    stays = asyncio.create_task(batches.run(["stays"], "c"))
    await asyncio.sleep(0)
    for call in gone:
        call.cancel()
    encode.let_go(2)
    assert await asyncio.gather(first, stays) == [["FIRST"], ["STAYS"]]
    assert encode.passes == [["first"], ["stays"]]


async def test_texts_of_a_call_that_was_given_up_are_in_no_further_pass() -> None:
    encode = Held()
    batches = Batches(encode, most=2)
    async with asyncio.timeout(30):
        left = asyncio.ensure_future(batches.run(["a1", "a2", "a3", "a4"], "a"))
        await encode.until_begun(1)
        never = asyncio.ensure_future(batches.run(["b1", "b2"], "b"))
        stays = asyncio.ensure_future(batches.run(["c1"], "c"))
        await asyncio.sleep(0)
        left.cancel()
        never.cancel()
        await asyncio.gather(never, return_exceptions=True)
        assert not left.done(), "two of its texts are in the pass that runs"
        encode.let_go(2)
        assert await stays == ["C1"]
        await asyncio.gather(left, return_exceptions=True)
        assert (left.cancelled(), never.cancelled()) == (True, True)
    assert encode.passes == [["a1", "a2"], ["c1"]]
