"""A stream whose engine is lost after the first byte: another one goes on, and the client notices nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from scripted_member import Meddler, Member, chunk, cut, listening, says, stall
from sim_engine import SimEngine
from support.gateway import (
    COMPLETIONS,
    MODEL,
    Answered,
    Faults,
    Running,
    SimSettings,
    as_sent,
    chat,
    gateway,
    text_of,
)
from support.graph import CHAT

WORDS = 8
TOKENS = WORDS + 1
"""Words of an answer, and its end."""

QUICK = SimSettings(itl_ms=0, tokens=WORDS, keep_bodies=8)
TOGETHER = SimSettings(itl_ms=30, tokens=WORDS)
"""Streams that begin together are cut together."""

ONE_AFTER_THE_OTHER = [{"priority": number} for number in range(5)]
"""Engine 0 is asked first, engine 1 next …"""

RARELY_LOOKED_AT = {"health_period_s": 60.0}
USAGE = {"stream_options": {"include_usage": True}}


def in_order(count: int, settings: SimSettings = QUICK, **args: Any) -> Any:
    return gateway(*[settings] * count, upstreams=ONE_AFTER_THE_OTHER[:count], **args)


def body_for(path: str, **fields: Any) -> dict[str, Any]:
    """A greedy stream."""
    asked = {"stream": True, "temperature": 0, **fields}
    return chat("hi there", **asked) if path == CHAT else {"model": MODEL, "prompt": "hi there", **asked}


async def undisturbed(body: dict[str, Any], path: str = CHAT, settings: SimSettings = QUICK) -> Answered:
    """What one engine answers, asked without a gateway."""
    engine = SimEngine(settings)
    url = await engine.start()
    async with aiohttp.ClientSession() as http, http.post(url + path, json=body) as response:
        answer = Answered(response.status, response.headers, await response.read())
    await engine.stop()
    return answer


def same(answer: Answered) -> list[dict[str, Any]]:
    """A stream's events but for what names the response, which must be the same in all of them, and for the
    fingerprint, which a usage chunk that is not the engine's does not know."""
    chunks = answer.chunks
    assert len({(each["id"], each["created"]) for each in chunks}) == 1, chunks
    named = {"id": "", "created": 0, "system_fingerprint": ""}
    return [each | named for each in chunks]


# ---- cut anywhere ----


@pytest.mark.parametrize("options", [{}, USAGE], ids=["", "usage"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_stream_cut_after_any_token_is_the_undisturbed_one(
    path: str, options: dict[str, Any]
) -> None:
    body = body_for(path, max_tokens=100, **options)
    expected = same(await undisturbed(body, path))
    async with in_order(2) as running:
        lost, other = running.engines
        for position in range(TOKENS):
            await lost.set_faults(Faults(die_after=position, times=1))
            answer = await running.send(body, path)
            assert same(answer) == expected, f"cut after {position} tokens"
            assert answer.headers["x-served-by"] == ("e0" if position else "e1")
        assert running.requests() == [TOKENS, TOKENS]
        traffic = await running.traffic()
        assert (traffic["continued"], traffic["failovers"], traffic["cut"]) == (TOKENS - 1, 1, 0)
        assert other.stats().finished == TOKENS
        await running.until_idle()


@pytest.mark.parametrize("then", ["cut", "end"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_stream_cut_inside_any_event_is_the_undisturbed_one(path: str, then: str) -> None:
    """Also between the last token and the end, and by an engine that ends its stream as if all were said."""
    short = SimSettings(itl_ms=0, tokens=2)
    body = body_for(path, max_tokens=100, **USAGE)
    expected = same(await undisturbed(body, path, short))
    size = len((await undisturbed(body | {"return_token_ids": True}, path, short)).body)
    async with meddled(short, then=then) as (running, meddler):
        for passed in range(1, size, 13):
            meddler.passed = passed
            answer = await running.send(body, path)
            assert same(answer) == expected, f"cut after {passed} bytes of {size}"
        assert (await running.traffic())["cut"] == 0
        await running.until_idle()


@asynccontextmanager
async def meddled(settings: SimSettings, **meddling: Any) -> AsyncIterator[tuple[Running, Meddler]]:
    """A gateway whose first member is an engine that is meddled with, and whose next is a plain one."""
    engine = SimEngine(settings)
    url = await engine.start()
    try:
        async with aiohttp.ClientSession() as http:
            meddler = Meddler(http, url, **meddling)
            member = Member(meddler)
            async with listening(member):
                others = [member.upstream(kind="vllm", health_period_s=0.05)]
                async with gateway(settings, upstreams=[{"priority": 1}], others=others) as running:
                    yield running, meddler
    finally:
        await engine.stop()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_stream_that_is_cut_again_and_again_is_the_undisturbed_one(path: str) -> None:
    """Beside others: members died, which is no stream's fault."""
    body = body_for(path, max_tokens=100, **USAGE)
    expected = same(await undisturbed(body, path))
    async with in_order(4, TOGETHER, gateway={"max_attempts": 4}) as running:
        for engine in running.engines[:3]:
            await engine.set_faults(Faults(die_after=2))
        others = (running.send(body_for(path, user=str(number)), path) for number in range(3))
        answer, *_ = await asyncio.gather(running.send(body, path), *others)
        assert same(answer) == expected
        assert running.requests() == [4, 4, 4, 4]
        assert (await running.traffic())["continued"] == 12


async def test_a_stream_that_is_cut_more_often_than_max_attempts_allow_ends_with_an_error_event() -> None:
    async with in_order(4, TOGETHER, gateway={"max_attempts": 3}) as running:
        for engine in running.engines:
            await engine.set_faults(Faults(die_after=2))
        answer, _ = await asyncio.gather(running.send(body_for(CHAT)), running.send(body_for(CHAT, user="a")))
        assert answer.cut["code"] == "upstream_failed"
        assert text_of([json.loads(event) for event in answer.events[:-1]]).count(" ") == 6
        assert running.requests() == [2, 2, 2, 0]
        traffic = await running.traffic()
        assert (traffic["continued"], traffic["cut"]) == (4, 2)
        await running.until_idle()


async def test_members_that_failed_before_the_first_byte_count_as_asked() -> None:
    """`gateway.max_attempts` are the members that one request may be sent to in all."""
    async with in_order(3, gateway={"max_attempts": 2}) as running:
        await running.engines[0].set_faults(Faults(status=500))
        await running.engines[1].set_faults(Faults(die_after=2))
        assert (await running.send(body_for(CHAT))).cut
        assert running.requests() == [1, 1, 0]


async def test_a_member_that_failed_before_the_first_byte_is_not_asked_again_after_it() -> None:
    upstreams = [{"priority": 0}, {"priority": 1}, {"priority": 2}]
    async with gateway(QUICK, QUICK, QUICK, upstreams=upstreams, gateway={"max_attempts": 9}) as running:
        await running.engines[0].set_faults(Faults(status=503))
        await running.engines[1].set_faults(Faults(die_after=2))
        assert (await running.send(body_for(CHAT))).text
        assert running.requests() == [1, 1, 1]


async def test_a_member_that_fails_a_continuation_before_its_first_byte_is_replaced_too() -> None:
    body = body_for(CHAT)
    expected = same(await undisturbed(body))
    async with in_order(3) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        await running.engines[1].set_faults(Faults(status=503))
        assert same(await running.send(body)) == expected
        assert running.requests() == [1, 1, 1]


# ---- the ways in which an engine is lost ----


async def test_an_engines_own_error_event_is_not_the_clients() -> None:
    body = body_for(CHAT, **USAGE)
    expected = same(await undisturbed(body))
    async with in_order(2) as running:
        for position in range(1, TOKENS):
            await running.engines[0].set_faults(Faults(error_after=position, times=1))
            assert same(await running.send(body)) == expected, position
        assert (await running.traffic())["continued"] == TOKENS - 1


async def test_an_engine_that_falls_silent_is_given_up_and_told_to_stop() -> None:
    body = body_for(CHAT)
    expected = same(await undisturbed(body))
    async with in_order(2, limits={"between_tokens_timeout_s": 0.3}) as running:
        silent = running.engines[0]
        await silent.set_faults(Faults(hang_after=3))
        assert same(await running.send(body)) == expected
        async with asyncio.timeout(5):
            await silent.until(lambda stats: stats.aborted == 1)


async def test_a_killed_engines_streams_go_on_elsewhere() -> None:
    slow = SimSettings(itl_ms=5, tokens=40)
    expected = same(await undisturbed(body_for(CHAT), settings=slow))
    async with in_order(2, slow) as running:
        async with running.stream("hi there", temperature=0) as stream:
            started = [await stream.event() for _ in range(4)]
            await running.engines[0].kill()
            rest = await stream.rest()
        events = b"".join(b"data: " + event + b"\n\n" for event in started)
        assert same(Answered(rest.status, rest.headers, events + rest.body)) == expected


@pytest.mark.parametrize("max_tokens", [1, 3, 4, 5, WORDS, TOKENS, 100])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_the_limit_is_the_whole_answers(path: str, max_tokens: int) -> None:
    body = body_for(path, max_tokens=max_tokens, **USAGE)
    expected = same(await undisturbed(body, path))
    async with in_order(2) as running:
        await running.engines[0].set_faults(Faults(die_after=4))
        assert same(await running.send(body, path)) == expected


async def test_an_answer_without_a_limit_is_bounded_by_the_context() -> None:
    small = SimSettings(itl_ms=0, tokens=WORDS, max_model_len=12)
    body = body_for(CHAT, ignore_eos=True, **USAGE)
    expected = same(await undisturbed(body, settings=small))
    async with in_order(2, small) as running:
        await running.engines[0].set_faults(Faults(die_after=2))
        assert same(await running.send(body)) == expected


async def test_usage_is_the_whole_answers() -> None:
    async with in_order(3) as running:
        for engine in running.engines[:1]:
            await engine.set_faults(Faults(die_after=3))
        *_, last = (await running.send(body_for(CHAT, **USAGE))).chunks
        assert last["choices"] == []
        usage = last["usage"]
        assert usage["completion_tokens"] == TOKENS
        assert usage["total_tokens"] == usage["prompt_tokens"] + TOKENS
        reference = (await running.send(body_for(CHAT, stream=False))).json["usage"]
        assert usage["prompt_tokens"] == reference["prompt_tokens"]


async def test_usage_that_nobody_asked_for_is_not_sent() -> None:
    async with in_order(2) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        assert not any(each.get("usage") for each in (await running.send(body_for(CHAT))).chunks)


# ---- whole answers ----


@pytest.mark.parametrize("fault", [Faults(die_after=5), Faults(error_after=5)], ids=["reset", "500"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_whole_answer_is_asked_for_again(path: str, fault: Faults) -> None:
    body = body_for(path, stream=False, n=1)
    expected = (await undisturbed(body, path)).json
    async with in_order(2) as running:
        await running.engines[0].set_faults(fault)
        answer = (await running.send(body, path)).json
        assert (answer["choices"], answer["usage"]) == (expected["choices"], expected["usage"])
        bodies = [as_sent(engine.stats().seen[0]["body"]) for engine in running.engines]
        assert bodies == [body, body]


# ---- what cannot be continued ----

NOT_CONTINUABLE: dict[str, dict[str, Any]] = {
    "n": {"n": 2},
    "logprobs": {"logprobs": True},
    "top_logprobs": {"logprobs": True, "top_logprobs": 2},
    "response_format": {"response_format": {"type": "json_object"}},
    "tools": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "stop text": {"stop": ["stop"]},
    "seeded sampling": {"seed": 1, "temperature": 0.7},
    "presence_penalty": {"presence_penalty": 0.5},
    "own token ids": {"return_token_ids": True},
    "unknown field": {"x_new": 1},
    "image": {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    },
}


@pytest.mark.parametrize("then", [cut, stall, None], ids=["cut", "stall", "end"])
@pytest.mark.parametrize("name", NOT_CONTINUABLE)
async def test_a_stream_that_cannot_be_continued_ends_with_one_error_event(name: str, then: Any) -> None:
    said = [chunk("", role="assistant"), chunk("a"), chunk("b")]
    first, second = Member(says(*said, then=then)), Member(says(*said, b"[DONE]"))
    async with listening(first, second):
        others = [
            first.upstream(name="a", kind="vllm", **RARELY_LOOKED_AT),
            second.upstream(name="b", kind="vllm", priority=1, **RARELY_LOOKED_AT),
        ]
        limits = {"between_tokens_timeout_s": 0.2} if then is stall else {}
        async with gateway(others=others, limits=limits) as running:
            body = chat("hi", stream=True, **NOT_CONTINUABLE[name]) | NOT_CONTINUABLE[name]
            answer = await running.send(body)
            assert answer.cut["type"] == "upstream_error"
            assert answer.events[:-1] == said
            assert (len(first.seen), len(second.seen)) == (1, 0)
            assert as_sent(first.seen[0].body) == body
            assert (await running.traffic())["cut"] == 1
            await running.until_idle()


async def test_a_client_that_asked_for_token_ids_gets_them_as_they_are() -> None:
    body = body_for(CHAT, return_token_ids=True)
    expected = await undisturbed(body)
    async with in_order(1) as running:
        assert same(await running.send(body)) == same(expected)
        assert as_sent(running.engines[0].stats().seen[0]["body"]) == body


async def test_a_client_that_refuses_failover_gets_an_error_event() -> None:
    body = body_for(CHAT)
    async with in_order(2) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        answer = await running.send(body, headers={"x-failover": "off"})
        assert answer.cut["code"] == "upstream_failed"
        assert running.requests() == [1, 0]
        assert as_sent(running.engines[0].stats().seen[0]["body"]) == body


async def test_only_members_that_speak_vllm_are_asked_for_token_ids() -> None:
    upstreams = [{"kind": "openai", "priority": 0}, {"kind": "vllm", "priority": 1}]
    body = body_for(CHAT)
    async with gateway(QUICK, QUICK, upstreams=upstreams) as running:
        assert (await running.send(body)).text
        await running.engines[0].set_faults(Faults(status=500))
        assert (await running.send(body)).text
        seen = [as_sent(engine.stats().seen[-1]["body"]) for engine in running.engines]
        assert seen == [body, body | {"return_token_ids": True}]


async def test_a_cut_upstream_that_gives_no_token_ids_ends_with_an_error_event() -> None:
    upstreams = [{"kind": "openai", "priority": 0}, {"kind": "vllm", "priority": 1}]
    async with gateway(QUICK, QUICK, upstreams=upstreams) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        assert (await running.send(body_for(CHAT))).cut["code"] == "upstream_failed"
        assert running.requests() == [1, 0]


async def test_an_upstream_that_gives_no_token_ids_continues_no_answer() -> None:
    upstreams = [{"kind": "vllm", "priority": 0}, {"kind": "openai", "priority": 1}, {"priority": 2}]
    body = body_for(CHAT)
    async with gateway(QUICK, QUICK, QUICK, upstreams=upstreams) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        assert same(await running.send(body)) == same(await undisturbed(body))
        assert running.requests() == [1, 0, 1]


async def test_a_cut_that_nobody_can_continue_is_told_at_once() -> None:
    """No other member is there, or will be: waiting for one would keep the client from trying again."""
    upstreams = [{"kind": "vllm"}, {"kind": "openai", "priority": 1}]
    async with gateway(QUICK, QUICK, upstreams=upstreams, limits={"max_queue_wait_s": 8.0}) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        async with asyncio.timeout(4):
            assert (await running.send(body_for(CHAT))).cut["code"] == "upstream_failed"


async def test_a_cut_that_nobody_can_continue_does_not_hold_up_the_next_request() -> None:
    """The member that broke one stream off may serve others well."""
    async with gateway(QUICK, upstream=RARELY_LOOKED_AT, limits={"max_queue_wait_s": 8.0}) as running:
        await running.engines[0].set_faults(Faults(die_after=3, times=1))
        async with running.stream("first", temperature=0) as cut_one:
            for _ in range(4):
                await cut_one.event()
            async with asyncio.timeout(4):
                assert (await running.post("second")).text


# ---- what the client does meanwhile ----


async def test_a_client_that_leaves_during_a_continuation_aborts_it() -> None:
    async with in_order(2) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        await running.engines[1].set_faults(Faults(hang_after=2))
        async with running.stream("hi there", temperature=0) as stream:
            for _ in range(1 + 3 + 2):
                await stream.event()
            stream.leave()
        async with asyncio.timeout(5):
            await running.engines[1].until(lambda stats: stats.aborted == 1)
        await running.until_idle()


async def test_a_deadline_covers_a_continuation_too() -> None:
    async with in_order(2) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        await running.engines[1].set_faults(Faults(hang_after=2))
        answer = await running.send(body_for(CHAT), headers={"x-request-timeout-ms": "1000"})
        assert answer.cut["code"] == "deadline_exceeded"
        assert running.requests() == [1, 1]
        async with asyncio.timeout(5):
            await running.engines[1].until(lambda stats: stats.aborted == 1)


async def test_a_continuation_is_asked_for_under_the_members_own_name() -> None:
    other = SimSettings(model="theirs", itl_ms=0, tokens=WORDS, keep_bodies=2)
    upstreams = [{"priority": 0}, {"priority": 1, "model": "theirs"}]
    async with gateway(QUICK, other, upstreams=upstreams) as running:
        await running.engines[0].set_faults(Faults(die_after=3))
        answer = await running.send(body_for(CHAT))
        assert answer.text == (await undisturbed(body_for(CHAT))).text
        assert {each["model"] for each in answer.chunks} == {MODEL}
        (seen,) = running.engines[1].stats().seen
        assert (seen["path"], json.loads(seen["body"])["model"]) == (COMPLETIONS, "theirs")
