"""What is reserved before anything is counted: of a key's first request, of texts that are read several
times, of thoughts that are not sent, and of answers fetched beside stale ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Member, begin, chunk, listening, stall
from support.accounts import accounts_handle, bearer, managed
from support.gateway import MODEL, SimSettings, gateway, meanwhile
from support.graph import eventually
from test_gateway_items import pooling_engine
from test_gateway_limits import arrived, budgeted, cached, knows, limited, used_of

from serve_app.quotas.limits import Limit
from serve_app.settings.paths import ENGINE_PATHS

HELD_MS = {"x-request-timeout-ms": "3000"}


async def test_a_first_request_does_not_wait_for_the_owner_and_counts(tmp_path: Path) -> None:
    limit = Limit("tenant:acme", tokens_per_day=100_000, requests_per_minute=1000, parallel_requests=1000)
    async with limited(tmp_path, limit, engine=SimSettings(tokens=5)) as (running, handle, key):
        with handle.held("lease"):
            assert (await running.post("hello", key | HELD_MS, max_tokens=5)).status == 200

        async def counted() -> bool:
            return await used_of(handle) > 5 and await used_of(handle, "requests_per_minute") == 1

        assert await eventually(counted, within_s=10)


@pytest.mark.parametrize(
    "limits", [{"parallel_requests": 4}, {"requests_per_minute": 60}, {"tokens_per_day": 1000}]
)
async def test_a_first_request_waits_where_it_is_much_of_a_limit(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    async with limited(tmp_path, Limit("tenant:acme", **limits), engine=SimSettings(tokens=5)) as (
        running,
        handle,
        key,
    ):
        with handle.held("lease"):
            before = handle.begun["lease"]

            async def is_asked() -> bool:
                return handle.begun["lease"] > before

            async with meanwhile(running.post("hello", key, max_tokens=50)) as first:
                assert await eventually(is_asked, within_s=10)
                assert running.requests() == [0]
                handle.let("lease")
                assert (await first).status == 200


async def test_a_first_answer_shows_its_limits_where_it_takes_as_long_as_the_owner(tmp_path: Path) -> None:
    limit = Limit("tenant:acme", tokens_per_minute=100_000)
    slow = SimSettings(first_token_ms=300, tokens=5)
    async with limited(tmp_path, limit, engine=slow) as (running, _, key):
        answer = await running.post("hello", key, max_tokens=5)
        assert answer.headers["x-ratelimit-limit-tokens"] == "100000"
        assert 0 < int(answer.headers["x-ratelimit-remaining-tokens"]) < 100_000


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/rerank", {"query": "word " * 400, "documents": ["short"] * 20}),
        ("/v1/score", {"text_1": "word " * 400, "text_2": ["short"] * 20}),
        ("/v1/score", {"queries": "word " * 400, "documents": ["short"] * 20, "data_1": "a", "data_2": "b"}),
    ],
)
async def test_a_text_that_is_read_with_each_of_many_is_reserved_so_often(
    tmp_path: Path, path: str, fields: dict[str, Any]
) -> None:
    """The query alone would fit."""
    member = Member(pooling_engine)
    async with listening(member), accounts_handle(tmp_path) as handle:
        key, kept = managed("acme")
        await handle.target.make_key(kept)
        await handle.target.set_limit(Limit("tenant:acme", tokens_per_day=5000))
        others = [member.upstream(kind="vllm", paths=list(ENGINE_PATHS), health_period_s=60.0)]
        args: dict[str, Any] = {"auth": {"accounts": True}, "accounts": {"call_timeout_s": 1.5}}
        async with gateway(others=others, handles={"accounts": handle}, **args) as running:
            assert await eventually(lambda: knows(running, bearer(key)), within_s=10)
            refused = await running.send({"model": MODEL, **fields}, path, bearer(key))
            assert refused.status == 429, refused.body
            assert not member.seen


@pytest.mark.parametrize("off", [False, 0, "off"])
async def test_who_leaves_thoughts_that_are_not_sent_pays_for_them(
    tmp_path: Path, off: bool | int | str
) -> None:
    """No event comes while an engine thinks so; with all events, a stream without one costs its prompt."""
    thinking = SimSettings(first_token_ms=60_000, tokens=5)
    limit = Limit("tenant:acme", tokens_per_day=100_000)
    async with limited(tmp_path, limit, engine=thinking) as (running, handle, key):
        asking = running.post("think", key, stream=True, max_tokens=500, include_reasoning=off)
        async with meanwhile(asking):
            await arrived(running, 1)

        async def counted() -> bool:
            return await used_of(handle) >= 500

        assert await eventually(counted, within_s=10)


async def test_thoughts_that_are_not_sent_end_with_the_budget_and_are_paid(tmp_path: Path) -> None:
    """The member answers fast at first, so a second of silence is taken for many tokens."""

    async def think(request: web.Request) -> web.StreamResponse:
        fields = json.loads(await request.read())
        if not fields.get("stream"):
            usage = {"prompt_tokens": 5, "completion_tokens": 500, "total_tokens": 505}
            choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
            return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})
        answer = await begin(request)
        await answer.write(b"data: " + chunk("") + b"\n\n")
        await stall()
        return answer

    async with budgeted(tmp_path, Member(think), tokens_per_day=3000) as (running, handle, key):
        assert (await running.post("how fast?", key, max_tokens=600)).status == 200
        async with running.stream("think", key, include_reasoning=False) as stream:
            ended = await stream.rest()
        assert ended.cut["code"] == "insufficient_quota"

        async def counted() -> bool:
            return await used_of(handle) > 505 + 1000

        assert await eventually(counted, within_s=10)


async def test_an_answer_fetched_beside_a_stale_one_counts_as_running(tmp_path: Path) -> None:
    slow = SimSettings(first_token_ms=1500, tokens=5)
    async with cached(tmp_path, slow, parallel_requests=1, stale_s=600.0) as (running, _, key, cache):
        brief = {**key, "x-cache-ttl": "0.01"}

        async def tell(text: str) -> tuple[int, str | None]:
            answer = await running.post(text, brief, temperature=0, max_tokens=120)
            return answer.status, answer.headers.get("x-cache")

        assert await tell("first") == (200, "miss")

        async def stored() -> bool:
            return cache.store.ended["put"] > 0

        assert await eventually(stored, within_s=10)
        assert await tell("first") == (200, "exact")
        await arrived(running, 2)
        assert (await tell("second"))[0] == 429

        async def runs_again() -> bool:
            return (await tell("third"))[0] == 200

        assert await eventually(runs_again, within_s=15)
