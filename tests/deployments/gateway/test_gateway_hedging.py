"""A member that is slow to begin: another one is asked beside it, and the first to answer wins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Member, answers, begin, chunk, cut, listening, says, stall
from support.gateway import DONE, MODEL, Faults, Running, SimSettings, gateway, meanwhile

QUICK = SimSettings(itl_ms=0, tokens=3)
KNOWN_AFTER = 32
"""First bytes until it is known what is slow."""

ONE_AFTER_THE_OTHER = [{"priority": number} for number in range(3)]
SLOW = Faults(first_byte_ms=10_000)


@asynccontextmanager
async def hedging(*engines: SimSettings, share: float = 0.5, **args: Any) -> AsyncIterator[Running]:
    """Engines that are asked one after the other; how long an answer takes to begin is known."""
    upstreams = ONE_AFTER_THE_OTHER[: len(engines)]
    model = {"hedge": {"max_share": share, "quantile": 0.9}}
    async with gateway(*engines, **{"upstreams": upstreams, "model": model} | args) as running:
        await warm_up(running)
        yield running


async def warm_up(running: Running) -> None:
    for _ in range(KNOWN_AFTER):
        assert (await running.post("hi", stream=True)).status == 200
    assert (await running.traffic())["hedged"] == 0


async def counted(running: Running) -> tuple[int, int]:
    traffic = await running.traffic()
    return traffic["hedged"], traffic["hedge_wins"]


async def test_the_second_member_answers_when_the_first_is_slow_to_begin() -> None:
    async with hedging(QUICK, QUICK) as running:
        slow, other = running.engines
        await slow.set_faults(SLOW)
        async with asyncio.timeout(5):
            answer = await running.post("hi", stream=True)
            assert (bool(answer.text), answer.headers["x-served-by"]) == (True, "e1")
            await slow.until(lambda stats: stats.aborted == 1)
        assert await counted(running) == (1, 1)
        assert (slow.stats().requests, other.stats().requests) == (KNOWN_AFTER + 1, 1)
        assert (await running.traffic())["failovers"] == 0
        await running.until_idle()


async def test_the_first_member_answers_when_the_second_is_slower_still() -> None:
    async with hedging(QUICK, QUICK) as running:
        first, second = running.engines
        await first.set_faults(Faults(first_byte_ms=500))
        await second.set_faults(SLOW)
        async with asyncio.timeout(5):
            answer = await running.post("hi", stream=True)
            assert (bool(answer.text), answer.headers["x-served-by"]) == (True, "e0")
            await second.until(lambda stats: stats.aborted == 1)
        assert first.stats().aborted == 0
        assert await counted(running) == (1, 0)
        await running.until_idle()


async def test_no_more_than_the_share_is_hedged() -> None:
    async with hedging(QUICK, QUICK, share=0.1) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=250))
        for _ in range(8):
            assert (await running.post("hi", stream=True)).text
        assert (await running.traffic())["hedged"] == 0.1 * (KNOWN_AFTER + 8)


async def test_nothing_is_hedged_before_it_is_known_what_is_slow() -> None:
    model = {"hedge": {"max_share": 0.5}}
    async with gateway(QUICK, QUICK, upstreams=ONE_AFTER_THE_OTHER[:2], model=model) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=200))
        assert (await running.post("hi", stream=True)).headers["x-served-by"] == "e0"
        assert running.requests() == [1, 0]


async def test_whole_answers_are_not_hedged() -> None:
    """Their first byte says how long they are, not how slow the member is."""
    async with hedging(QUICK, QUICK) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=200))
        assert (await running.post("hi")).headers["x-served-by"] == "e0"
        assert await counted(running) == (0, 0)


async def test_nothing_is_hedged_unless_the_settings_say_so() -> None:
    async with hedging(QUICK, QUICK, model={}) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=200))
        assert (await running.post("hi", stream=True)).headers["x-served-by"] == "e0"
        assert running.requests() == [KNOWN_AFTER + 1, 0]


async def test_a_member_without_room_is_not_asked_beside_another() -> None:
    upstreams = [{"priority": 0}, {"priority": 1, "max_requests": 1}]
    endless = SimSettings(itl_ms=20)
    async with hedging(QUICK, endless, upstreams=upstreams) as running:
        await running.engines[0].set_faults(Faults(status=500, times=1))
        async with running.stream("takes the place", ignore_eos=True) as stream:
            assert stream.headers["x-served-by"] == "e1"
            before = await counted(running)  # the refusal may have been slow itself, on a busy machine
            await running.engines[0].set_faults(Faults(first_byte_ms=200))
            assert (await running.post("hi", stream=True)).headers["x-served-by"] == "e0"
            assert running.engines[1].stats().requests == 1
        assert await counted(running) == before


async def test_a_request_that_nobody_else_can_take_waits_for_the_one_that_can() -> None:
    async with hedging(QUICK) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=200))
        assert (await running.post("hi", stream=True)).text
        assert await counted(running) == (0, 0)


async def test_a_hedge_that_fails_leaves_the_first_to_answer() -> None:
    async with hedging(QUICK, QUICK) as running:
        first, second = running.engines
        await first.set_faults(Faults(first_byte_ms=500))
        await second.set_faults(Faults(status=500))
        answer = await running.post("hi", stream=True)
        assert (bool(answer.text), answer.headers["x-served-by"]) == (True, "e0")
        assert second.stats().requests == 1
        assert await counted(running) == (1, 0)
        await running.until_idle()


async def test_a_first_member_that_fails_leaves_the_hedge_to_answer() -> None:
    async with hedging(QUICK, QUICK) as running:
        first, second = running.engines
        await first.set_faults(Faults(first_byte_ms=500, die_after=0))
        await second.set_faults(Faults(first_byte_ms=900))
        answer = await running.post("hi", stream=True)
        assert (bool(answer.text), answer.headers["x-served-by"]) == (True, "e1")
        assert second.stats().requests == 1
        await running.until_idle()


async def test_two_that_fail_beside_each_other_are_both_not_asked_again() -> None:
    async with hedging(QUICK, QUICK, QUICK) as running:
        first, second, third = running.engines
        await first.set_faults(Faults(first_byte_ms=500, die_after=0))
        await second.set_faults(Faults(status=503))  # full, not broken: one broken member leaves one attempt
        await third.set_faults(Faults(first_byte_ms=0))
        answer = await running.post("hi", stream=True)
        assert (bool(answer.text), answer.headers["x-served-by"]) == (True, "e2")
        assert running.requests() == [KNOWN_AFTER + 1, 1, 1]
        await running.until_idle()


async def test_a_refusal_by_one_of_two_is_not_the_answer_while_the_other_may_give_one() -> None:
    async with hedging(QUICK, QUICK) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=500))
        await running.engines[1].set_faults(Faults(status=429))
        assert (await running.post("hi", stream=True)).headers["x-served-by"] == "e0"


async def test_a_client_that_leaves_aborts_both() -> None:
    async with hedging(QUICK, QUICK) as running:
        for engine in running.engines:
            await engine.set_faults(SLOW)
        async with meanwhile(running.post("hi", stream=True)) as asked:
            await running.engines[1].until(lambda stats: stats.requests == 1)
            asked.cancel()
            async with asyncio.timeout(5):
                for engine in running.engines:
                    await engine.until(lambda stats: stats.aborted == 1)
        await running.until_idle()


async def test_an_answer_that_a_hedge_began_is_continued_like_any_other() -> None:
    async with hedging(*[SimSettings(itl_ms=1, tokens=8)] * 3) as running:
        expected = (await running.post("hi", stream=True)).text
        slow, hedge, third = running.engines
        before = third.stats().requests
        await slow.set_faults(SLOW)
        await hedge.set_faults(Faults(die_after=4))
        await third.set_faults(Faults())
        async with asyncio.timeout(5):
            assert (await running.post("hi", stream=True)).text == expected
        traffic = await running.traffic()
        assert (traffic["continued"], traffic["cut"]) == (1, 0)
        assert third.stats().requests == before + 1
        await running.until_idle()


@pytest.mark.parametrize("path", ["/tokenize", "/v1/embeddings"])
async def test_what_may_have_had_an_effect_is_not_asked_beside_another(path: str) -> None:
    async def slowly(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/chat/completions"):
            return await says(chunk("a"), DONE)(request)
        await stall()
        raise AssertionError("stalls for ever")

    first, second = Member(slowly), Member(answers(200, {}))
    async with listening(first, second):
        others = [
            first.upstream(name="a", kind="vllm"),
            second.upstream(name="b", kind="vllm", priority=1),
        ]
        model = {"hedge": {"max_share": 0.5, "quantile": 0.9}}
        async with gateway(others=others, model=model) as running:
            await warm_up(running)
            body, headers = {"model": MODEL, "input": "x", "prompt": "x"}, {"x-request-timeout-ms": "500"}
            answer = await running.send(body, path, headers)
            assert answer.status == 504
            assert second.seen == []
            assert await counted(running) == (0, 0)


# ---- what is asked on the way to an answer ----


async def test_what_a_continuation_asks_on_its_way_is_not_hedged() -> None:
    """It generates nothing: how soon a stream begins says nothing of how long it may take."""
    head = (
        b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"sim","choices":[{"index":0,'
    )
    role = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
    two = b'"delta":{"content":"ab"},"logprobs":null,"finish_reason":null,"token_ids":[11,12]}]}\n\n'
    answer_at_once, told = says(chunk("x"), DONE), asyncio.Event()
    asked_on_the_way = asyncio.Event()

    async def well(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.03)  # what a first byte takes: far more than those of the streams below
        return await answer_at_once(request)

    async def breaks(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        await response.write(head + role + b'"prompt_token_ids":[1,2],"prompt_text":null}\n\n' + head + two)
        await asyncio.sleep(0)
        await cut(request)
        return response

    async def continues(request: web.Request) -> web.StreamResponse:
        if request.path == "/detokenize":
            asked_on_the_way.set()
            await told.wait()
            return web.json_response({"prompt": "ab"})
        rest = b'"text":"c","logprobs":null,"finish_reason":"stop","stop_reason":null,'
        response = await begin(request)
        await response.write(head.replace(b"chat.completion.chunk", b"text_completion") + rest)
        await response.write(b'"prompt_token_ids":null,"token_ids":[13]}]}\n\ndata: [DONE]\n\n')
        return response

    first, second, third = (Member(answer, context=1000) for answer in (well, continues, continues))
    async with listening(first, second, third):
        others = [
            {**member.upstream(name=f"e{number}", kind="vllm", priority=number), "health_period_s": 0.05}
            for number, member in enumerate((first, second, third))
        ]
        model = {"hedge": {"max_share": 0.5, "quantile": 0.9}}
        async with gateway(others=others, model=model) as running:
            await warm_up(running)
            first.answer = breaks
            async with meanwhile(running.post("hi", stream=True)) as asked:
                async with asyncio.timeout(5):
                    await asked_on_the_way.wait()
                await asyncio.sleep(0.2)  # several times what a first byte takes
                assert third.seen == []
                told.set()
                assert (await asked).text == "abc"
            assert (await running.traffic())["hedged"] == 0


async def test_what_generates_nothing_says_nothing_of_first_tokens() -> None:
    member = Member(answers(200, {"prompt": "x"}))
    async with listening(member), gateway(others=[member.upstream(kind="vllm")]) as running:
        answer = await running.send({"model": MODEL, "tokens": [1]}, "/detokenize")
        assert (answer.status, answer.json) == (200, {"prompt": "x"})
        assert "upstream-ttft" not in answer.headers["server-timing"]
        assert "upstream-ttft" not in (await running.get("/admin/latency"))
