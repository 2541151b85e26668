"""A client whose stream has not begun hears that it will; what fails after that is an event."""

from __future__ import annotations

import asyncio

import openai
from support.gateway import Answered, Faults, Running, SimSettings, gateway, meanwhile

from serve_app.dialects.base import KEEP_ALIVE_COMMENT

QUICK = SimSettings(itl_ms=0, tokens=6)
OFTEN = {"gateway": {"keep_alive_s": 0.03}}
NEVER = {"gateway": {"keep_alive_s": 0}}
ONE_SLOT = SimSettings(itl_ms=10, tokens=10_000, slots=1)
ONE_AT_A_TIME = {"max_requests": 1}


async def slowly(running: Running) -> None:
    await running.engines[0].set_faults(Faults(first_byte_ms=150))


def split(answer: Answered) -> tuple[int, Answered]:
    """The comments before the first event, and the answer without them."""
    body, count = answer.body, 0
    while body.startswith(KEEP_ALIVE_COMMENT):
        body, count = body.removeprefix(KEEP_ALIVE_COMMENT), count + 1
    return count, Answered(answer.status, answer.headers, body)


async def test_a_stream_that_has_not_begun_says_so_and_then_comes_whole() -> None:
    async with gateway(QUICK, **OFTEN) as running:
        plain = await running.post("hi", stream=True)
        await slowly(running)
        count, answer = split(await running.post("hi", stream=True))
        assert count >= 2
        assert answer.text == plain.text
        assert split(plain)[0] == 0
        for headers in (plain.headers, answer.headers):
            assert headers["content-type"] == "text/event-stream; charset=utf-8"
            assert headers["x-accel-buffering"] == "no"
            assert headers["cache-control"] == "no-cache"
        assert "x-served-by" in plain.headers
        assert "x-served-by" not in answer.headers


async def test_an_answer_that_is_not_streamed_has_none() -> None:
    async with gateway(QUICK, **OFTEN) as running:
        await slowly(running)
        answer = await running.post("hi")
        assert answer.json["choices"]
        assert "x-served-by" in answer.headers


async def test_what_fails_after_the_first_is_an_event_and_before_it_a_status() -> None:
    for args, clean in ((OFTEN, False), (NEVER, True)):
        async with gateway(QUICK, **args) as running:
            engine = running.engines[0]
            await engine.set_faults(Faults(hang_before=True))
            async with meanwhile(running.post("hi", {"x-failover": "off"}, stream=True)) as asked:
                await asyncio.sleep(0.15)  # some periods
                await engine.kill()
                count, answer = split(await asked)
            assert (answer.status >= 500, count > 0) == (clean, not clean)
            assert (answer.error if clean else answer.cut)["code"]


async def test_a_deadline_ends_the_wait_with_an_event() -> None:
    async with gateway(QUICK, **OFTEN) as running:
        await running.engines[0].set_faults(Faults(hang_before=True))
        _, answer = split(await running.post("hi", {"x-request-timeout-ms": "200"}, stream=True))
        assert answer.cut["code"] == "deadline_exceeded"


async def test_a_client_that_leaves_during_the_wait_leaves_nothing_behind() -> None:
    async with gateway(QUICK, **OFTEN) as running:
        await running.engines[0].set_faults(Faults(hang_before=True))
        async with running.stream("hi") as stream:
            assert KEEP_ALIVE_COMMENT.startswith(await stream.event())
        await running.until_idle()


async def test_openais_client_passes_over_them() -> None:
    async with gateway(QUICK, **OFTEN) as running:
        await slowly(running)
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(
                model="sim", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            texts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(texts)


async def test_who_waits_in_the_queue_hears_it_too() -> None:
    async with gateway(ONE_SLOT, upstream=ONE_AT_A_TIME, **OFTEN) as running:
        async with running.stream("first") as first:
            await first.event()
            async with meanwhile(running.post("second", stream=True, max_tokens=2)) as second:
                await running.until_traffic(lambda counted: counted["requests"] == 2)
                await asyncio.sleep(0.1)  # some periods
                first.leave()
                count, answer = split(await second)
        assert count >= 1
        assert answer.text
