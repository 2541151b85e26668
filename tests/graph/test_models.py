"""Two real models and a LoRA adapter on one endpoint: tiny Llamas in vLLM engines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from ray import serve
from support.graph import ADMIN_TOKEN, AS_ADMIN, CHAT, Graph, eventually
from support.tiny_adapter import write_adapter, write_merged
from support.tiny_llama import write_tiny_llama

from deployments.graph import build_engine, build_graph
from serve_app.model_store import ModelStore
from serve_app.request.admin_token import TOKEN_VARIABLE
from serve_app.settings import parse_args

pytestmark = pytest.mark.e2e

TOKENIZER = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONTEXTS = {"base": 1024, "merged": 2048}
ENGINE: dict[str, Any] = {
    "accelerator": "cpu",
    "num_cpus": 0,
    "dtype": "float32",
    "enforce_eager": True,
    "cpu_kv_cache_gib": 1,
    "warm_up": False,
    # Two engines on two cores: one thread each, wherever there is room.
    "env": {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
}
QUESTION = "Tell me about the sea."
START_TIMEOUT_S = 240


@pytest.fixture(scope="module")
def endpoint(
    serve_url: str, prepared_models: ModelStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Graph]:
    """``base`` with the adapter ``poet``, and ``merged``: the base with the same adapter in its weights."""
    folder = tmp_path_factory.mktemp("models")
    base = write_tiny_llama(folder / "base", prepared_models.folder(TOKENIZER), seed=1)
    poet = write_adapter(folder / "poet", base, seed=2)
    merged = write_merged(folder / "merged", base, poet)
    priority = {"scheduling_policy": "priority", "max_num_seqs": 1, "lora": {"adapters": {"poet": str(poet)}}}
    models = [
        {
            "id": "base",
            "source": str(base),
            "aliases": ["gpt-4o-mini"],
            "engine": ENGINE | priority | {"max_model_len": CONTEXTS["base"]},
            "max_requests_per_replica": 8,  # the engine's own line decides who is next
            "drain_timeout_s": 0.0,
        },
        {
            "id": "merged",
            "source": str(merged),
            "engine": ENGINE | {"max_model_len": CONTEXTS["merged"]},
            "drain_timeout_s": 0.0,
        },
    ]
    auto = {"id": "auto", "models": ["base", "merged"], "tiers": {"poems": ["merged"]}}
    settings = parse_args({"models": models, "auto_models": [auto]}, source="models")
    environment = {**os.environ, TOKEN_VARIABLE: ADMIN_TOKEN}
    serve.run(build_graph(settings, environment, engine=build_engine), name="models", route_prefix="/models")
    graph = Graph(f"{serve_url}/models", "models", {})
    wait_ready(graph)
    yield graph
    serve.delete("models")


def wait_ready(graph: Graph) -> None:
    async def wait() -> None:
        async with aiohttp.ClientSession() as session:

            async def is_ready() -> bool:
                async with session.get(f"{graph.url}/ready") as response:
                    return response.status == 200

            assert await eventually(is_ready, within_s=START_TIMEOUT_S)

    asyncio.run(wait())


async def ask(
    http: aiohttp.ClientSession, graph: Graph, model: str, headers: Any = None, **fields: Any
) -> tuple[Any, Any]:
    """The headers and the answer."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
    body |= {"temperature": 0, "max_tokens": 24, "ignore_eos": True} | fields
    async with http.post(graph.url + CHAT, json=body, headers=headers) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return response.headers, answer


def text_of(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


async def test_an_adapter_answers_as_the_model_that_it_was_merged_into(
    http: aiohttp.ClientSession, endpoint: Graph
) -> None:
    answers = {name: (await ask(http, endpoint, name))[1] for name in ("base", "poet", "merged")}
    assert {name: answer["model"] for name, answer in answers.items()} == {name: name for name in answers}
    texts = {name: text_of(answer) for name, answer in answers.items()}
    assert texts["poet"] == texts["merged"]
    assert texts["poet"] != texts["base"]
    again = await asyncio.gather(*(ask(http, endpoint, name) for name in ("poet", "base", "poet", "base")))
    assert [text_of(answer) for _, answer in again] == [texts[name] for name in ("poet", "base") * 2]


async def test_every_name_is_listed(http: aiohttp.ClientSession, endpoint: Graph) -> None:
    async with http.get(f"{endpoint.url}/v1/models") as response:
        cards = {card["id"]: card for card in (await response.json())["data"]}
    assert list(cards) == ["base", "poet", "gpt-4o-mini", "merged", "auto"]
    assert cards["poet"]["parent"] == cards["gpt-4o-mini"]["root"] == "base"
    assert {name: cards[name]["max_model_len"] for name in CONTEXTS} == CONTEXTS


async def test_an_alias_is_answered_by_its_model(http: aiohttp.ClientSession, endpoint: Graph) -> None:
    headers, answer = await ask(http, endpoint, "gpt-4o-mini")
    assert (headers["x-model"], answer["model"]) == ("base", "base")
    assert text_of(answer) == text_of((await ask(http, endpoint, "base"))[1])
    body = {"model": "gpt-4o-mini", "prompt": "one two"}
    async with http.post(f"{endpoint.url}/tokenize", json=body) as response:
        assert (response.status, (await response.json())["max_model_len"]) == (200, CONTEXTS["base"])


async def test_a_prompt_goes_to_the_first_model_that_holds_it(
    http: aiohttp.ClientSession, endpoint: Graph
) -> None:
    long = [{"role": "user", "content": "word " * 1_200}]
    asked = [
        await ask(http, endpoint, "auto"),
        await ask(http, endpoint, "auto", messages=long),
        await ask(http, endpoint, "auto", headers={"x-model-tier": "poems"}),
    ]
    assert [headers["x-model"] for headers, _ in asked] == ["base", "merged", "merged"]
    assert asked[1][1]["usage"]["prompt_tokens"] > CONTEXTS["base"]


async def test_the_engine_takes_the_more_urgent_first(http: aiohttp.ClientSession, endpoint: Graph) -> None:
    ended: list[str] = []

    async def waits(name: str, priority: str) -> None:
        await ask(http, endpoint, "base", {"x-priority": priority}, max_tokens=4)
        ended.append(name)

    async def both_wait() -> bool:
        async with http.get(f"{endpoint.url}/admin/fleet", headers=AS_ADMIN) as response:
            (member,) = (await response.json())["base"]
        return bool(member["waiting"] == 2)

    first = {"model": "base", "prompt": "In the way", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    async with http.post(f"{endpoint.url}/v1/completions", json=first) as response:
        await response.content.readany()
        waiting = [asyncio.ensure_future(waits("late", "9"))]
        waiting.append(asyncio.ensure_future(waits("urgent", "0")))
        assert await eventually(both_wait, within_s=10)
        response.close()
    await asyncio.gather(*waiting)
    assert ended == ["urgent", "late"]
