"""A stream that flows: no task is woken for its chunks, and what ends the flow loses no byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from deployments.gateway.lookup.in_flight import WOKEN_A_TURN, InFlightRequests, Reader
from deployments.gateway.request.answer import Head, Live
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.send.flow import Flow
from serve_app.errors import UpstreamFailed

HEAD = Head(200, "text/event-stream", True, "e0")


class Arriving(Live):
    """An answer that says what it is told to, when it is told to."""

    head = HEAD

    def __init__(self) -> None:
        self._chunks: list[bytes | None] = []
        self._more = asyncio.Event()
        self.arrived: Callable[[], None] | None = None
        self.reads = 0

    def say(self, *chunks: bytes | None) -> None:
        """``None``: only ``read`` can go on."""
        self._chunks += chunks
        self._more.set()
        if self.arrived is not None:
            self.arrived()

    async def read(self) -> bytes:
        self.reads += 1
        while not self._chunks:
            self._more.clear()
            await self._more.wait()
        return self._chunks.pop(0) or b""

    def read_now(self) -> bytes | None:
        if not self._chunks:
            return b""
        return None if self._chunks[0] is None else self._chunks.pop(0)

    def listen(self, arrived: Callable[[], None]) -> bool:
        if self._chunks:
            return False
        self.arrived = arrived
        return True

    def unlisten(self) -> None:
        self.arrived = None

    def close(self) -> None:
        pass


class Client:
    """Takes what is written until it is slow."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.is_slow = False

    def write_now(self, data: bytes) -> bool:
        if not self.is_slow:
            self.got.append(data)
        return not self.is_slow


def upper(chunk: bytes) -> bytes:
    return chunk.upper()


async def flowing(
    client: Client, answer: Live, translate: Callable[[bytes], bytes] = upper
) -> asyncio.Task[bytes]:
    flow = Flow(cast("Exchange", client), answer, translate)
    task = asyncio.create_task(flow.run())
    await asyncio.sleep(0)
    return task


async def test_a_chunk_is_written_in_the_turn_in_which_it_arrives() -> None:
    client, answer = Client(), Arriving()
    task = await flowing(client, answer)
    answer.say(b"a")
    answer.say(b"b", b"c")
    assert client.got == [b"A", b"B", b"C"], "no turn of the loop has passed"
    assert not task.done()
    answer.say(None)
    assert await task == b""
    assert answer.arrived is None


async def test_what_is_there_already_is_read_in_the_usual_way() -> None:
    client, answer = Client(), Arriving()
    answer.say(b"a")
    assert await (await flowing(client, answer)) == b""
    assert (client.got, await answer.read()) == ([], b"a")


async def test_what_a_slow_client_cannot_be_sent_comes_back() -> None:
    client, answer = Client(), Arriving()
    task = await flowing(client, answer)
    client.is_slow = True
    answer.say(b"a", b"b")
    assert await task == b"A"
    assert (client.got, await answer.read()) == ([], b"b")


async def test_a_chunk_that_becomes_nothing_is_no_end() -> None:
    client, answer = Client(), Arriving()
    task = await flowing(client, answer, lambda chunk: b"" if chunk == b"usage" else chunk)
    answer.say(b"usage", b"a")
    assert client.got == [b"a"]
    answer.say(None)
    assert await task == b""


async def test_an_error_of_the_translation_ends_the_stream_and_not_the_connection() -> None:
    def refuse(chunk: bytes) -> bytes:
        raise UpstreamFailed("no chat", code="upstream_failed")

    answer = Arriving()
    task = await flowing(Client(), answer, refuse)
    answer.say(b"a")  # raises nothing here
    with pytest.raises(UpstreamFailed, match="no chat"):
        await task
    assert answer.arrived is None


async def test_a_client_that_leaves_stops_the_flow() -> None:
    client, answer = Client(), Arriving()
    task = await flowing(client, answer)
    task.cancel()
    answer.say(b"a")  # in the same turn, before the task knows
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answer.arrived is None


# ---- a shared stream


class Shared:
    """One request in flight with so many readers, which have all had its first chunk."""

    def __init__(self, keep_bytes: int = 1 << 20) -> None:
        self.answer = Arriving()
        self.completed: list[list[bytes]] = []
        self._requests = InFlightRequests()
        self._keep_bytes = keep_bytes

    async def readers(self, count: int) -> list[Reader]:
        async def opened() -> Any:
            return self.answer

        key: Any = "key"
        first = self._requests.start(
            key,
            opened(),
            self._keep_bytes,
            lambda _, chunks: self.completed.append(chunks),
            opens_alone=True,
            priority=0,
        )
        self.answer.say(b"first")
        readers = [await first.begin()]
        for _ in range(count - 1):
            joined = self._requests.join(key, 0)
            assert joined is not None
            readers.append(await joined.begin())
        for reader in readers:
            assert await reader.read() == b"first"
        return readers


async def test_others_get_what_flows_to_one() -> None:
    shared, client = Shared(), Client()
    one, other = await shared.readers(2)
    task = await flowing(client, one)
    assert not other.listen(lambda: None), "one reads for all"
    waiting = asyncio.create_task(other.read())
    await asyncio.sleep(0)
    shared.answer.say(b"a")
    assert client.got == [b"A"]
    assert await waiting == b"a"
    shared.answer.say(b"b", None)
    assert await task == b""
    assert [await other.read(), await other.read(), await one.read()] == [b"b", b"", b""]
    assert shared.completed == [[b"first", b"a", b"b"]]


async def test_another_reads_on_when_the_one_that_listened_leaves() -> None:
    shared = Shared()
    one, other = await shared.readers(2)
    task = await flowing(Client(), one)
    waiting = asyncio.create_task(other.read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    one.close()
    shared.answer.say(b"a")
    assert await waiting == b"a"


async def test_who_is_behind_reads_before_it_listens() -> None:
    shared = Shared()
    one, other = await shared.readers(2)
    shared.answer.say(b"a")
    assert await one.read() == b"a"
    assert not other.listen(lambda: None)
    assert await other.read() == b"a"
    assert other.listen(lambda: None)
    other.unlisten()


async def test_a_flow_keeps_no_more_than_it_may() -> None:
    shared, client = Shared(keep_bytes=10), Client()
    (one,) = await shared.readers(1)
    task = await flowing(client, one)
    for _ in range(50):
        shared.answer.say(b"x" * 8)
    assert client.got == [b"X" * 8] * 50
    shared.answer.say(None)
    assert await task == b""
    assert await one.read() == b""
    assert shared.completed == [], "an answer of which bytes were dropped is not recorded"


async def test_many_readers_of_one_answer_act_over_several_turns() -> None:
    """Two hundred that end at once would hold the event loop for as many milliseconds."""
    shared = Shared()
    one, *others = await shared.readers(1 + 5 * WOKEN_A_TURN)
    task = await flowing(Client(), one)
    reading = [asyncio.create_task(other.read()) for other in others]
    await asyncio.sleep(0)
    done: list[int] = []
    shared.answer.say(b"a")
    while len(done) < 50 and (not done or done[-1] < len(others)):
        await asyncio.sleep(0)
        done.append(sum(each.done() for each in reading))
    steps = [after - before for before, after in pairwise([0, *done])]
    assert max(steps) == WOKEN_A_TURN
    assert len([step for step in steps if step]) == 5
    assert await asyncio.gather(*reading) == [b"a"] * len(others)
    shared.answer.say(None)
    assert await task == b""


async def test_no_reader_is_woken_so_late_that_its_bytes_are_gone() -> None:
    shared = Shared(keep_bytes=100)
    one, *others = await shared.readers(1 + 5 * WOKEN_A_TURN)
    task = await flowing(Client(), one)
    reading = [asyncio.create_task(other.read()) for other in others]
    await asyncio.sleep(0)
    for _ in range(2):
        shared.answer.say(b"x" * 60)
        await asyncio.sleep(0)
    assert await asyncio.wait_for(asyncio.gather(*reading), 10) == [b"x" * 60] * len(others)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
