"""The cache through HTTP: a real embedder, a real embedded Qdrant, a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from ray import serve
from support.graph import CHAT, Graph, chat, eventually


async def ask(
    http: aiohttp.ClientSession, graph: Graph, body: dict[str, Any], tenant: str = "a", **headers: str
) -> tuple[aiohttp.ClientResponse, bytes]:
    sent = graph.headers(tenant) | {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.post(graph.url + CHAT, json=body, headers=sent) as response:
        return response, await response.read()


async def status_of(*args: Any, **kwargs: Any) -> str:
    response, _ = await ask(*args, **kwargs)
    assert response.status == 200
    return response.headers["x-cache"]


async def stored(http: aiohttp.ClientSession, graph: Graph, body: dict[str, Any], tenant: str = "a") -> None:
    """Ask, and wait until the answer is in the store (not only in the gateway's memory)."""
    before = (await admin(http, graph, "GET"))["entries"]
    assert await status_of(http, graph, body, tenant) == "miss"

    async def one_more() -> bool:
        return bool((await admin(http, graph, "GET"))["entries"] > before)

    assert await eventually(one_more, within_s=10)


async def admin(http: aiohttp.ClientSession, graph: Graph, method: str, query: str = "") -> Any:
    async with http.request(
        method, f"{graph.url}/admin/cache{query}", headers=graph.headers("admin")
    ) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def test_the_same_request_is_an_exact_hit(http: aiohttp.ClientSession, main: Graph) -> None:
    body = chat("say exact hit please")
    await stored(http, main, body)
    response, data = await ask(http, main, body)
    assert response.headers["x-cache"] == "exact"
    assert response.headers["x-served-by"] == "cache"
    assert int(response.headers["x-cache-age"]) >= 0
    assert json.loads(data)["choices"][0]["message"]["content"] == "exact hit please"


async def test_streamed_and_whole_answers_share_an_entry(http: aiohttp.ClientSession, main: Graph) -> None:
    """The first stream asked for no usage, and was sent none; the entry has it all the same."""
    response, data = await ask(http, main, chat("say shared entry", stream=True))
    assert response.headers["x-cache"] == "miss"
    assert b"usage" not in data
    response, data = await ask(http, main, chat("say shared entry"))
    assert response.headers["x-cache"] == "exact"
    assert json.loads(data)["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    with_usage = {"stream": True, "stream_options": {"include_usage": True}}
    response, data = await ask(http, main, chat("say shared entry", **with_usage))
    events = data.decode().strip().split("\n\n")
    assert response.headers["x-cache"] == "exact"
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert events[-1] == "data: [DONE]"
    assert json.loads(events[-2].removeprefix("data: "))["usage"]["completion_tokens"] == 2
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events[:-2]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "shared entry"


async def test_a_rephrased_question_is_a_semantic_hit(http: aiohttp.ClientSession, main: Graph) -> None:
    await stored(http, main, chat("What is the capital of France?"))
    response, _ = await ask(http, main, chat("Can you tell me the capital of France?"), x_debug_timing="1")
    assert response.headers["x-cache"] == "semantic"
    assert 0.9 <= float(response.headers["x-cache-similarity"]) < 1
    assert 0.9 <= float(response.headers["x-cache-score"]) <= 1
    assert response.headers["x-cache-entry"]
    assert "embed;dur=" in response.headers["server-timing"]  # its key may see it, and it asked
    assert "search;dur=" in response.headers["server-timing"]
    for tenant, asks in (("a", "0"), ("b", "1")):
        other, _ = await ask(http, main, chat("And that of Italy?"), tenant, x_debug_timing=asks)
        assert "embed;dur=" not in other.headers["server-timing"]
    assert await status_of(http, main, chat("What is the capital of Spain?")) == "miss"


async def test_a_request_may_set_its_own_threshold(http: aiohttp.ClientSession, main: Graph) -> None:
    await stored(http, main, chat("How tall is the Eiffel tower?"))
    near = chat("What is the height of the Eiffel tower?")
    assert await status_of(http, main, near, cache_control="no-store", x_cache_threshold="0.999") == "miss"
    assert await status_of(http, main, near, x_cache_threshold="0.999") == "miss"
    nearer = chat("How tall is the Eiffel tower, please?")
    assert await status_of(http, main, nearer, x_cache_threshold="0.5") == "semantic"


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0},
        {"max_tokens": 7},
        {"stop": ["x"]},
        {"seed": 1},
        {"response_format": {"type": "json_object"}},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "say partitions"}]},
    ],
)
async def test_whatever_shapes_the_answer_is_a_partition(
    http: aiohttp.ClientSession, main: Graph, change: dict[str, Any]
) -> None:
    await ask(http, main, chat("say partitions"))
    assert await status_of(http, main, chat("say partitions")) == "exact"
    assert await status_of(http, main, chat("say partitions") | change) == "miss"


async def test_tenants_do_not_share(http: aiohttp.ClientSession, main: Graph) -> None:
    await stored(http, main, chat("Whose answer is this one?"), tenant="a")
    assert await status_of(http, main, chat("Whose answer is this one?"), tenant="a") == "exact"
    assert await status_of(http, main, chat("Whose answer is that one?"), tenant="b") == "miss"
    other = chat("Which shop sells blue paint by the litre?")
    await stored(http, main, other, tenant="a")
    assert await status_of(http, main, other, tenant="b") == "miss"


@pytest.mark.parametrize(
    "change",
    [{"tools": [{"type": "function"}]}, {"n": 2}, {"logprobs": True}, {"echo": True}, {"new_field": 1}],
)
async def test_what_cannot_be_replayed_faithfully_bypasses(
    http: aiohttp.ClientSession, main: Graph, change: dict[str, Any]
) -> None:
    for _ in range(2):
        assert await status_of(http, main, chat("say bypass", **change)) == "bypass"


@pytest.mark.parametrize("text", ["length", "tools"])
async def test_an_answer_that_is_not_whole_or_not_text_is_not_stored(
    http: aiohttp.ClientSession, main: Graph, text: str
) -> None:
    for stream in (False, False) if text == "tools" else (False, True):
        assert await status_of(http, main, chat(text, stream=stream)) == "miss"


async def test_a_cut_stream_is_not_stored(http: aiohttp.ClientSession, main: Graph) -> None:
    for _ in range(2):
        response, _ = await ask(http, main, chat("die after 3", stream=True))
        assert response.headers["x-cache"] == "miss"


async def test_no_store_neither_reads_nor_writes(http: aiohttp.ClientSession, main: Graph) -> None:
    body = chat("say no store")
    assert await status_of(http, main, body, cache_control="no-store") == "miss"
    assert await status_of(http, main, body) == "miss"
    assert await status_of(http, main, body, cache_control="no-store") == "miss"
    assert await status_of(http, main, body) == "exact"


async def test_no_cache_does_not_read_but_writes(http: aiohttp.ClientSession, main: Graph) -> None:
    body = chat("say no cache")
    assert await status_of(http, main, body, cache_control="no-cache") == "miss"
    assert await status_of(http, main, body) == "exact"
    assert await status_of(http, main, body, cache_control="no-cache") == "miss"


async def test_max_age_and_ttl_bound_the_age(http: aiohttp.ClientSession, main: Graph) -> None:
    body = chat("say max age")
    assert await status_of(http, main, body, x_cache_ttl="1") == "miss"
    assert await status_of(http, main, body, cache_control="max-age=60") == "exact"
    assert await status_of(http, main, body, cache_control="max-age=0") == "miss"  # stored again, for a day
    assert await status_of(http, main, chat("say short"), x_cache_ttl="0.05") == "miss"

    async def expired() -> bool:
        return await status_of(http, main, chat("say short"), x_cache_ttl="0.05") == "miss"

    assert await eventually(expired, within_s=5)


async def test_entries_are_found_and_deleted_by_tag_id_model_and_tenant(
    http: aiohttp.ClientSession, main: Graph
) -> None:
    body = chat("say tagged")
    await ask(http, main, body, x_cache_tags="blue, red")

    async def listed() -> bool:
        return len((await admin(http, main, "GET", "?tag=red"))["entries"]) == 1

    assert await eventually(listed, within_s=10)
    (entry,) = (await admin(http, main, "GET", "?tag=red"))["entries"]
    assert (entry["tenant"], entry["text"], entry["tags"]) == ("a", "say tagged", ["blue", "red"])
    assert await admin(http, main, "DELETE", "?tag=red&tenant=b") == {"deleted": 0}
    assert await admin(http, main, "DELETE", "?tag=red") == {"deleted": 1}
    await stored(http, main, body)
    assert await admin(http, main, "DELETE", f"?id={entry['id']}&model=other") == {"deleted": 0}
    assert await status_of(http, main, body) == "exact"
    assert await admin(http, main, "DELETE", f"?id={entry['id']}&model=scripted") == {"deleted": 1}
    assert await status_of(http, main, body) == "miss"


async def test_long_texts_with_one_beginning_are_never_near(http: aiohttp.ClientSession, main: Graph) -> None:
    """The embedder reads 256 tokens: beyond them, only the very same text is a hit."""
    beginning = "Summarise this: " + "word " * 400
    await stored(http, main, chat(beginning + "apples"))
    assert await status_of(http, main, chat(beginning + "pears")) == "miss"
    assert await status_of(http, main, chat(beginning + "apples")) == "exact"


async def test_a_store_that_cannot_be_opened_fails_no_request(
    http: aiohttp.ClientSession, broken_cache: Graph
) -> None:
    for number in range(8):
        response, data = await ask(http, broken_cache, chat(f"say still here {number}"))
        assert response.status == 200
        assert response.headers["x-cache"] == "miss"
        assert json.loads(data)["choices"][0]["message"]["content"] == f"still here {number}"
    stats = await admin(http, broken_cache, "GET")
    assert "not a folder" not in stats["error"]
    assert "file" in stats["error"]
    assert stats["breaker_open"] is True
    assert (
        await status_of(http, broken_cache, chat("say still here 0")) == "exact"
    )  # the gateway's own memory


@pytest.fixture(scope="module")
def sharded(deploy_ready: Callable[..., Graph], tmp_path_factory: pytest.TempPathFactory) -> Graph:
    embedder = {"id": "minilm", "source": "sentence-transformers/all-MiniLM-L6-v2", "threads": 1}
    path = str(tmp_path_factory.mktemp("shards"))
    cache = {"path": path, "lookup_budget_ms": 2000.0, "race": False, "shards": 2}
    return deploy_ready("sharded", {"embedder": embedder, "cache": cache})


async def test_a_cache_of_two_shards_answers_from_both_and_is_purged_whole(
    http: aiohttp.ClientSession, sharded: Graph
) -> None:
    asked = [chat("What is the capital of France?", max_tokens=100 + number) for number in range(24)]
    for body in asked:
        assert await status_of(http, sharded, body) == "miss"

    async def all_are_stored() -> bool:
        return bool((await admin(http, sharded, "GET"))["entries"] == len(asked))

    assert await eventually(all_are_stored, within_s=20)
    names = {name for name in serve.status().applications["sharded"].deployments if "Cache" in name}
    assert names == {"SemanticCache", "SemanticCache:2"}
    held = [await serve.get_deployment_handle(name, "sharded").stats.remote() for name in names]
    assert sum(stats.entries for stats in held) == len(asked)
    assert all(stats.entries for stats in held)
    for body in asked:
        near = {**body, "messages": [{"role": "user", "content": "Can you tell me the capital of France?"}]}
        assert await status_of(http, sharded, near) == "semantic"
    assert await admin(http, sharded, "DELETE", "?model=scripted") == {"deleted": len(asked)}
    for body in asked:
        assert await status_of(http, sharded, body) == "miss"
