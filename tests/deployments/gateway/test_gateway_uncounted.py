"""What a member does not count, or counts in its own way, is paid as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from local_cache import local_cache
from scripted_member import Member
from support.accounts import accounts_handle, bearer, managed
from support.gateway import FAST, MODEL, Running, SimSettings, gateway, meanwhile
from support.graph import eventually
from support.recordings import wav
from test_gateway_limits import arrived, budgeted, has_used, knows, limited, used_of
from test_gateway_realtime import (
    APPEND,
    COMMIT,
    LIVE,
    TRANSCRIBED,
    at_engine,
    audio,
    opened,
    say,
    speak,
    until,
)

from deployments.gateway.endpoints.realtime_use import PAID_S, TOKENS_PER_S
from serve_app.quotas.limits import Limit

CLEAR = "input_audio_buffer.clear"
RERANK, TRANSCRIBE = "/v1/rerank", "/v1/audio/transcriptions"
PLENTY = 10_000_000
PCM_BYTES_PER_S = 32_000


async def has_heard(running: Running, seconds: float) -> bool:
    return sum(map(len, at_engine(running).heard)) >= seconds * PCM_BYTES_PER_S


async def test_a_query_counts_with_each_document_that_it_is_read_with(tmp_path: Path) -> None:
    """300 kB of query and 20 documents: the member reads more tokens than the body has bytes."""
    tokens = 20 * 75_000

    async def scored(_: web.Request) -> web.Response:
        results = [{"index": n, "document": {"text": "x"}, "relevance_score": 0.5} for n in range(20)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return web.json_response({"id": "r", "model": MODEL, "usage": usage, "results": results})

    member = Member(scored)
    async with budgeted(tmp_path, member, tokens_per_day=PLENTY, paths=[RERANK]) as (running, handle, key):
        body = {"model": MODEL, "query": "word " * 60_000, "documents": ["x"] * 20}
        answer = await running.send(body, RERANK, key)
        assert answer.status == 200, answer.body

        async def counted() -> bool:
            return await used_of(handle) == tokens

        assert await eventually(counted, within_s=10)


async def test_a_recording_whose_member_counts_seconds_is_paid_as_estimated(tmp_path: Path) -> None:
    async def transcribed(_: web.Request) -> web.Response:
        return web.json_response({"text": "word " * 100, "usage": {"type": "duration", "seconds": 10}})

    member = Member(transcribed)
    async with budgeted(tmp_path, member, tokens_per_day=PLENTY, paths=[TRANSCRIBE]) as (
        running,
        handle,
        key,
    ):
        form = aiohttp.FormData({"model": MODEL})
        form.add_field("file", wav(10.0), filename="a.wav", content_type="audio/wav")
        async with running.http.post(TRANSCRIBE, data=form, headers=key) as answer:
            assert answer.status == 200, await answer.read()

        async def counted() -> bool:
            return await used_of(handle) >= 500

        assert await eventually(counted, within_s=10)


async def test_a_whole_answer_without_usage_is_paid_by_its_bytes(tmp_path: Path) -> None:
    async def silent(_: web.Request) -> web.Response:
        message = {"role": "assistant", "content": "word " * 800}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "choices": [choice]})

    async with budgeted(tmp_path, Member(silent), tokens_per_day=PLENTY) as (running, handle, key):
        assert (await running.post("tell", key, max_tokens=2000)).status == 200

        async def counted() -> bool:
            return 1000 <= await used_of(handle) < 1200

        assert await eventually(counted, within_s=10)


async def test_what_no_model_reads_costs_no_tokens(tmp_path: Path) -> None:
    async def tokenized(_: web.Request) -> web.Response:
        return web.json_response({"count": 100, "max_model_len": 1000, "tokens": list(range(100))})

    async with budgeted(tmp_path, Member(tokenized), tokens_per_day=200) as (running, handle, key):
        refused = await running.post("word " * 1000, key)
        assert refused.status == 429
        assert refused.error["message"].endswith("fits: shorten the prompt, or set a lower `max_tokens`.")
        for path, body in (
            ("/tokenize", {"prompt": "word " * 100}),
            ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "word " * 100}]}),
        ):
            answer = await running.send({"model": MODEL, **body}, path, key)
            assert answer.status == 200, answer.body
        assert await used_of(handle) == 0


@pytest.mark.parametrize("spoken_s", [5.0, PAID_S + 10])
async def test_an_utterance_that_its_client_leaves_is_paid_by_its_length(
    tmp_path: Path, spoken_s: float
) -> None:
    limit = Limit("tenant:acme", tokens_per_day=PLENTY)
    fast_talker = {"realtime": {"max_ahead_s": 100.0}}
    async with limited(tmp_path, limit, engine=FAST, upstream=LIVE, **fast_talker) as (running, handle, key):
        async with opened(running, headers=key) as ws:
            await speak(ws)
            for _ in range(int(spoken_s)):
                await say(ws, APPEND, audio=audio(1.0))
            assert await eventually(lambda: has_heard(running, spoken_s), within_s=10)
        heard = spoken_s * TOKENS_PER_S

        async def counted() -> bool:
            return heard <= await used_of(handle) < 2 * heard + 100

        assert await eventually(counted, within_s=10)


async def test_what_was_paid_ahead_of_a_long_utterance_is_not_paid_again(tmp_path: Path) -> None:
    limit = Limit("tenant:acme", tokens_per_day=PLENTY)
    async with limited(tmp_path, limit, engine=FAST, upstream=LIVE, realtime={"max_ahead_s": 100.0}) as (
        running,
        handle,
        key,
    ):
        async with opened(running, headers=key) as ws:
            await speak(ws)
            for _ in range(int(PAID_S) + 10):
                await say(ws, APPEND, audio=audio(1.0))
            await say(ws, COMMIT)
            done = await until(ws, f"{TRANSCRIBED}.completed")
        said = done["usage"]["total_tokens"]
        ahead = PAID_S * TOKENS_PER_S

        async def counted() -> bool:
            used = await used_of(handle)
            return max(said, ahead) <= used < max(said, ahead) + 100

        assert await eventually(counted, within_s=10)


async def test_an_utterance_that_is_cleared_is_paid_once(tmp_path: Path) -> None:
    limit = Limit("tenant:acme", tokens_per_day=PLENTY)
    async with limited(tmp_path, limit, engine=FAST, upstream=LIVE) as (running, handle, key):
        async with opened(running, headers=key) as ws:
            await speak(ws)
            for _ in range(2):
                await say(ws, APPEND, audio=audio(1.0))
            await say(ws, CLEAR)
            assert await eventually(lambda: has_used(handle, 1, PLENTY), within_s=10)
            used = await used_of(handle)
        await asyncio.sleep(1.5)  # the session's end reaches the owner within a second
        assert await used_of(handle) == used


async def test_an_answer_is_paid_also_where_its_first_client_ran_into_the_gateways_time_out(
    tmp_path: Path,
) -> None:
    """Another reads on: the generation has one who pays all the same."""
    slow = SimSettings(itl_ms=20, tokens=100)
    async with local_cache(tmp_path / "cache", race=False) as local, accounts_handle(tmp_path) as handle:
        key, kept = managed("acme")
        await handle.target.make_key(kept)
        await handle.target.set_limit(Limit("tenant:acme", tokens_per_day=PLENTY))
        args = {**local.args, "auth": {"accounts": True}, "limits": {"request_timeout_s": 1.0}}
        async with gateway(slow, handles={"accounts": handle, **local.handles}, **args) as running:
            assert await eventually(lambda: knows(running, bearer(key)), within_s=10)
            asked = {"temperature": 0, "max_tokens": 300}
            patient = bearer(key) | {"x-request-timeout-ms": "20000"}
            async with meanwhile(running.post("tell", bearer(key), **asked)) as first:
                await arrived(running, 1)
                second = await running.post("tell", patient, **asked)
                assert (await first).status == 504
            assert (second.status, second.headers["x-cache"]) == (200, "joined")

            async def counted() -> bool:
                return 100 < await used_of(handle) < 120

            assert await eventually(counted, within_s=10)


ARGUMENTS = {"text": "word " * 1000}
"""Of a call that a client says a model made: some 1,250 tokens."""


def told_by_chat(number: int) -> dict[str, Any]:
    function = {"name": "write", "arguments": json.dumps(ARGUMENTS)}
    call = {"id": "c", "type": "function", "function": function}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    said = {"role": "user", "content": f"number {number}"}
    result = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    return {"model": MODEL, "max_tokens": 1, "messages": [said, turn, result]}


def told_by_messages(number: int) -> dict[str, Any]:
    turn = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "write", "input": ARGUMENTS}],
    }
    said = {"role": "user", "content": f"number {number}"}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]}
    return {"model": MODEL, "max_tokens": 1, "messages": [said, turn, result]}


def told_by_responses(number: int) -> dict[str, Any]:
    turn = {"type": "function_call", "call_id": "c", "name": "write", "arguments": json.dumps(ARGUMENTS)}
    said = {"role": "user", "content": f"number {number}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    return {"model": MODEL, "max_output_tokens": 16, "input": [said, turn, result], "store": False}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/chat/completions", told_by_chat),
        ("/v1/messages", told_by_messages),
        ("/v1/responses", told_by_responses),
    ],
)
async def test_the_arguments_of_calls_are_reserved_before_a_member_reads_them(
    tmp_path: Path, path: str, told: Callable[[int], dict[str, Any]]
) -> None:
    """At once: what one of them used is not known before the others are let in."""
    limit = Limit("tenant:acme", tokens_per_day=3000)
    async with limited(tmp_path, limit, engine=SimSettings(itl_ms=0, tokens=1, first_token_ms=200)) as (
        running,
        handle,
        key,
    ):
        answers = await asyncio.gather(*(running.send(told(number), path, key) for number in range(8)))
        assert sorted({each.status for each in answers}) == [200, 429]

        async def settled() -> bool:
            return 1000 <= await used_of(handle) <= 3000

        assert await eventually(settled, within_s=10)
