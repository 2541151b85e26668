"""The scripted engine over HTTP: connections, models, errors, keys."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.sim import (
    CHAT,
    FAST,
    TEXT,
    Sim,
    decoded,
    running,
)


async def test_connections_are_kept_between_requests(sim: Sim) -> None:
    for path in (CHAT, CHAT, TEXT):
        assert (await sim.send(path, prompt="a", messages=[{"role": "user", "content": "a"}])).ok
    assert sim.engine.stats().connections == 1


async def test_the_model_and_its_context_are_listed(sim: Sim) -> None:
    (card,) = decoded(await sim.get("/v1/models"))["data"]
    assert (card["id"], card["max_model_len"]) == ("sim", FAST.max_model_len)
    assert (await sim.get("/health")).status == 200
    assert (await sim.get("/nothing")).status == 404


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"prompt": "a", "model": "other"}, 404),
        ({}, 400),
        ({"prompt": []}, 400),
        ({"prompt": [-1]}, 400),
        ({"prompt": "a", "max_tokens": "many"}, 400),
        ({"prompt": "a", "n": 2}, 400),
        ({"prompt": "a", "stop": ["b"]}, 400),
        ({"prompt": [5000] * 40_000}, 400),
    ],
)
async def test_a_request_that_cannot_be_answered_gets_an_error(
    sim: Sim, values: dict[str, Any], status: int
) -> None:
    sample = await sim.send(TEXT, **values)
    assert sample.status == decoded(sample)["error"]["code"] == status


async def test_a_key_can_be_required() -> None:
    async with running(replace(FAST, api_key="secret")) as sim:
        assert (await sim.chat("Hello")).status == 401
        assert (await sim.chat("Hello", {"authorization": "Bearer secret"})).ok
        assert (await sim.get("/sim/stats")).status == 200


async def test_the_last_requests_can_be_looked_at() -> None:
    async with running(replace(FAST, keep_bodies=1)) as sim:
        for text in ("one", "two"):
            await sim.chat(text, {"x-request-id": text})
        (seen,) = decoded(await sim.get("/sim/stats"))["seen"]
    assert (seen["path"], seen["headers"]["x-request-id"]) == (CHAT, "two")
    assert json.loads(seen["body"])["messages"][0]["content"] == "two"


@pytest.mark.parametrize("chat", [True, False])
async def test_several_tokens_come_in_one_chunk_after_the_first(chat: bool) -> None:
    """The text, the ids and the counts are those of one token in a chunk."""
    asked: dict[str, Any] = {"stream": True, "return_token_ids": True, "max_tokens": 12}
    asked |= {"messages": [{"role": "user", "content": "a"}]} if chat else {"prompt": "a"}
    found = {}
    for interval in (1, 5):
        async with running(replace(FAST, tokens=20, stream_interval=interval)) as sim:
            answer = await sim.send(CHAT if chat else TEXT, **asked)
        events = [json.loads(line[6:]) for line in answer.body.split(b"\n\n") if line.startswith(b"data: {")]
        choices = [each["choices"][0] for each in events if each["choices"]]
        ids = [choice["token_ids"] for choice in choices if choice.get("token_ids")]
        texts = [choice["delta"].get("content", "") if chat else choice["text"] for choice in choices]
        found[interval] = "".join(texts), [token for each in ids for token in each], [*map(len, ids)]
    assert found[1][:2] == found[5][:2]
    assert found[1][2] == [1] * 12
    assert found[5][2] == [1, 5, 5, 1]
