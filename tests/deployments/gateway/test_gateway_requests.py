"""Requests as clients write them: taken as vLLM takes them, or refused in words that are true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from local_cache import MAX_TOKENS, LocalCache, local_cache
from scripted_member import Member, answers, chunk, listening, says
from support.gateway import Answered, Running, SimSettings, gateway

QUICK = SimSettings(itl_ms=0, tokens=3)


@pytest.fixture
async def cache(folder: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(folder, race=False) as cache:
        yield cache


@asynccontextmanager
async def in_front_of(member: Member) -> AsyncIterator[Running]:
    async with listening(member):
        others = [member.upstream(kind="vllm", health_period_s=60.0)]
        async with gateway(others=others) as running:
            yield running


async def test_the_engine_is_asked_in_plain_types() -> None:
    member = Member(answers(400, {"error": {"message": "no"}}))
    async with in_front_of(member) as running:
        await running.post("hi", max_tokens="5", temperature="0.5", stream="false", seed="7")
    asked = member.seen[0].fields
    assert (asked["max_tokens"], asked["temperature"], asked["stream"]) == (5, 0.5, False)
    assert asked["seed"] == "7"  # what the gateway does not read is the engine's to judge


async def test_a_number_of_another_type_is_the_same_entry(cache: LocalCache) -> None:
    async with gateway(QUICK, handles=cache.handles, **cache.args) as running:
        assert (await running.post("hi", max_tokens=9)).headers["x-cache"] == "miss"
        for same in (9.0, "9", "9.0"):
            assert (await running.post("hi", max_tokens=same)).headers["x-cache"] == "exact"
        assert (await running.post("hi", max_tokens="8")).headers["x-cache"] == "miss"


async def test_a_stream_asked_for_in_words_is_a_stream() -> None:
    async with gateway(QUICK) as running:
        answer = await running.post("hi", stream="true", stream_options={"include_usage": "yes"})
        assert answer.chunks[-1]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
async def test_the_embedder_asked_for_words_says_what_it_does(cache: LocalCache, path: str) -> None:
    texts: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
        "/v1/completions": {"prompt": "hi"},
        "/v1/responses": {"input": "hi"},
        "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    }
    body = {"model": "words"} | texts[path]
    async with gateway(QUICK, handles=cache.handles, **cache.args) as running:
        refused = await running.send(body, path)
    assert refused.status == 400
    assert refused.error.get("param", "model") == "model"  # Anthropic's errors name no field
    assert "POST /v1/embeddings only" in refused.error["message"]


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engines_numbers_are_no_codes(status: int, stream: bool) -> None:
    member = Member(answers(status, {"error": {"message": "no", "type": "X", "param": None, "code": status}}))
    async with in_front_of(member) as running:
        refused = await running.post("hi", stream=stream)
    assert refused.error["code"] == ("upstream_refused" if status < 500 else "upstream_failed")


async def test_an_error_that_begins_a_stream_has_a_name_for_a_code() -> None:
    member = Member(says(b'{"error":{"message":"no","type":"X","param":null,"code":400}}'))
    async with in_front_of(member) as running:
        refused = await running.post("hi", stream=True)
    assert (refused.status, refused.error["code"]) == (400, "upstream_refused")


@pytest.mark.parametrize("together", [False, True])
async def test_an_error_inside_a_stream_is_its_end_and_has_a_name_for_a_code(together: bool) -> None:
    error = b'{"error":{"message":"EngineCore died","type":"InternalServerError","param":null,"code":500}}'
    events = [chunk('a "data: {"error'), error, b"[DONE]"]
    member = Member(says(b"\n\ndata: ".join(events)) if together else says(*events))
    async with in_front_of(member) as running:
        broken = await running.post("hi", stream=True, n=2)
    assert len(broken.events) == 2
    assert (broken.cut["message"], broken.cut["code"]) == ("EngineCore died", "upstream_failed")


# ---- speculation ----

SPECULATING = {"upstreams": [], "engine": {"speculation": {"method": "ngram", "num_speculative_tokens": 2}}}


@pytest.mark.parametrize("fields", [{"min_p": 0.1}, {"min_p": "0.1"}, {"logit_bias": {"5": 1}}], ids=repr)
async def test_a_model_that_speculates_names_what_it_cannot_do(fields: dict[str, Any]) -> None:
    model = {"source": "some/model", **SPECULATING}
    async with gateway(model=model, ready=False) as running:
        refused = await running.post("hi", **fields)
    assert (refused.status, refused.error["param"]) == (400, next(iter(fields)))
    assert "engine.speculation" in refused.error["message"]


async def test_another_model_is_asked_for_it() -> None:
    async with gateway(QUICK) as running:
        assert (await running.post("hi", min_p=0.1, logit_bias={"5": 1})).status == 200


# ---- embeddings ----


async def embed(running: Running, given: Any, **fields: Any) -> Answered:
    return await running.send({"model": "words", "input": given, **fields}, "/v1/embeddings")


@pytest.mark.parametrize("tokens", [[5, 6], [[5, 6], [7]], [True]])
async def test_tokens_as_input_name_the_clients_option(cache: LocalCache, tokens: Any) -> None:
    async with gateway(QUICK, handles=cache.handles, **cache.args) as running:
        refused = await embed(running, tokens)
    assert (refused.status, refused.error["param"]) == (400, "input")
    assert "check_embedding_ctx_length=False" in refused.error["message"]


LONG = " ".join(f"w{number}" for number in range(MAX_TOKENS + 5))
BEGINNING = " ".join(LONG.split()[:MAX_TOKENS])


@pytest.mark.parametrize("cut", [-1, MAX_TOKENS, float(MAX_TOKENS), "-1"])
async def test_a_long_text_is_cut_where_that_is_asked_for(cache: LocalCache, cut: Any) -> None:
    async with gateway(QUICK, handles=cache.handles, **cache.args) as running:
        whole = await embed(running, LONG)
        assert (whole.status, whole.error["code"]) == (400, "context_length_exceeded")
        assert "truncate_prompt_tokens" in whole.error["message"]
        cut_down, beginning = (
            await embed(running, LONG, truncate_prompt_tokens=cut),
            await embed(running, BEGINNING),
        )
    assert cut_down.json["data"] == beginning.json["data"]
    assert cut_down.json["usage"] == {"prompt_tokens": MAX_TOKENS, "total_tokens": MAX_TOKENS}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"truncate_prompt_tokens": 5}, f"expected -1 or {MAX_TOKENS}"),
        ({"truncate_prompt_tokens": 0}, f"expected -1 or {MAX_TOKENS}"),
        ({"truncate_prompt_tokens": -2}, ">= -1"),
        ({"truncate_prompt_tokens": -1, "truncation_side": "left"}, "cannot be chosen"),
    ],
    ids=repr,
)
async def test_another_cut_is_refused(cache: LocalCache, fields: dict[str, Any], expected: str) -> None:
    async with gateway(QUICK, handles=cache.handles, **cache.args) as running:
        refused = await embed(running, "hi", **fields)
    assert (refused.status, refused.error["param"]) == (400, list(fields)[-1])
    assert expected in refused.error["message"]
