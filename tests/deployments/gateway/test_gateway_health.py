"""A busy upstream answers late when it is asked how it is: alone, that is no failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from scripted_member import Member, answers, begin, chunk, listening
from support.gateway import DONE, Running, gateway

LOOKED_AT = {"health_period_s": 0.05, "health_timeout_s": 0.15}
WELL = answers(200, {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]})


class Busy(Member):
    """Answers what asks how it is only while it is ``idle``. ``looks`` counts those that wait."""

    def __init__(self, answer: object) -> None:
        super().__init__(answer)  # type: ignore[arg-type]
        self.idle = asyncio.Event()
        self.idle.set()
        self.looks = asyncio.Semaphore(0)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and not self.idle.is_set():
            self.looks.release()
            await self.idle.wait()
        return await super().handle(request)


@asynccontextmanager
async def sole(member: Busy) -> AsyncIterator[Running]:
    async with listening(member), gateway(others=[member.upstream(name="e0", **LOOKED_AT)]) as running:
        yield running
        member.idle.set()


async def test_a_sole_upstream_that_is_silent_once_goes_on_serving() -> None:
    member = Busy(WELL)
    async with sole(member) as running:
        member.idle.clear()
        await member.looks.acquire()
        await member.looks.acquire()  # the first look is over
        assert (await running.member(0))["can_serve"]
        assert (await running.post("hi")).status == 200
        member.idle.set()
        await running.until_serving(0, True)


async def test_an_upstream_that_stays_silent_is_given_up_and_found_again() -> None:
    member = Busy(WELL)
    async with sole(member) as running:
        member.idle.clear()
        await running.until_serving(0, False)
        member.idle.set()
        await running.until_serving(0, True)


async def test_an_upstream_whose_streams_go_on_is_alive_however_silent() -> None:
    done = asyncio.Event()

    async def streams(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        while not done.is_set():
            await response.write(b"data: " + chunk("x") + b"\n\n")
            await asyncio.sleep(0.02)
        await response.write(b"data: " + DONE + b"\n\n")
        return response

    member = Busy(streams)
    async with sole(member) as running, running.stream("hi") as stream:
        await stream.event()
        member.idle.clear()
        reading = asyncio.create_task(stream.rest())
        for _ in range(6):
            await member.looks.acquire()
            assert (await running.member(0))["can_serve"]
        done.set()
        assert (await reading).status == 200
