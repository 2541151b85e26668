"""Vectors, scores, classes and tokens: known items come from the cache, the engine is asked for the
others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from local_cache import local_cache
from scripted_member import Member, answers, listening
from support.gateway import MODEL, Answered, Running, gateway
from support.graph import eventually

from serve_app.settings.paths import ENGINE_PATHS

USAGE = ("prompt_tokens", "total_tokens")


async def pooling_engine(request: web.Request) -> web.StreamResponse:
    """As vLLM answers: a text's value is its length, and each text has one token for each letter."""
    fields = json.loads(await request.read())
    path = request.path
    if path == "/v1/rerank":
        documents = fields["documents"]
        results = [
            {"index": n, "document": {"text": text}, "relevance_score": len(text) / 100}
            for n, text in enumerate(documents)
        ]
        results.sort(key=lambda item: -item["relevance_score"])
        return web.json_response({"id": "r", "model": MODEL, "usage": _usage(documents), "results": results})
    if path == "/v1/score":
        texts = fields["text_2"]
        items: list[dict[str, Any]] = [{"object": "score", "score": len(text)} for text in texts]
    elif path == "/tokenize":
        text = fields["prompt"]
        return web.json_response({"count": len(text), "max_model_len": 9, "tokens": [*range(len(text))]})
    elif path == "/v2/embed":
        texts = fields["texts"]
        vectors = {"float": [[len(text)] for text in texts]}
        meta = {"billed_units": {"input_tokens": _usage(texts)["prompt_tokens"]}}
        return web.json_response({"id": "c", "embeddings": vectors, "texts": texts, "meta": meta})
    else:
        given = fields["input"]
        texts = given if isinstance(given, list) else [given]
        items = [{"object": "embedding", "embedding": [len(text)]} for text in texts]
    data = [{"index": n, **item} for n, item in enumerate(items)]
    return web.json_response(
        {"id": "e", "object": "list", "model": MODEL, "data": data, "usage": _usage(texts)}
    )


def _usage(texts: Sequence[str]) -> dict[str, int]:
    return dict.fromkeys(USAGE, sum(map(len, texts)))


@asynccontextmanager
async def pooling(folder: Path, **args: Any) -> AsyncIterator[tuple[Running, Member]]:
    member = Member(pooling_engine)
    async with listening(member), local_cache(folder, **args.pop("cache", {})) as cache:
        others = [member.upstream(kind="vllm", paths=list(ENGINE_PATHS), health_period_s=0.05)]
        async with gateway(others=others, handles=cache.handles, **cache.args, **args) as running:
            yield running, member


async def embed(running: Running, *texts: str, **options: Any) -> Answered:
    body = {"model": MODEL, "input": list(texts), **options.pop("fields", {})}
    answer = await running.send(body, options.pop("path", "/v1/embeddings"), **options)
    assert answer.status == 200, answer.body
    return answer


def lengths(answer: Answered) -> list[int]:
    assert [item["index"] for item in answer.json["data"]] == [*range(len(answer.json["data"]))]
    return [item["embedding"][0] for item in answer.json["data"]]


def status(answer: Answered) -> tuple[str, str]:
    return answer.headers["x-cache"], answer.headers["x-cache-items"]


async def test_the_engine_is_asked_only_for_the_texts_that_are_not_known(tmp_path: Path) -> None:
    async with pooling(tmp_path) as (running, member):
        first = await embed(running, "a", "bb")
        assert (lengths(first), status(first)) == ([1, 2], ("miss", "0/2"))
        mixed = await embed(running, "ccc", "bb", "a", "dddd")
        assert (lengths(mixed), status(mixed)) == ([3, 2, 1, 4], ("partial", "2/4"))
        assert mixed.json["usage"]["prompt_tokens"] == 7, "what an engine read for this answer"
        again = await embed(running, "dddd", "a")
        assert (lengths(again), status(again)) == ([4, 1], ("exact", "2/2"))
        assert (again.headers["x-served-by"], again.json["usage"]["total_tokens"]) == ("cache", 0)
        assert again.json["model"] == MODEL
        assert [seen.fields["input"] for seen in member.seen] == [["a", "bb"], ["ccc", "dddd"]]
        traffic = await running.traffic()
        assert (traffic["items"], traffic["items_cached"]) == (8, 4)


async def test_a_clients_own_bytes_are_sent_where_nothing_is_known(tmp_path: Path) -> None:
    async with pooling(tmp_path) as (running, member):
        await embed(running, "a", fields={"encoding_format": "float", "unknown": 1})
    assert member.seen[0].fields.items() >= {"encoding_format": "float", "unknown": 1}.items()


async def test_tenants_share_no_item(tmp_path: Path) -> None:
    async with pooling(tmp_path, tenants=["a", "b"]) as (running, member):
        for tenant, cached in (("a", "0/1"), ("a", "1/1"), ("b", "0/1")):
            answer = await embed(running, "secret", headers=running.headers(tenant))
            assert answer.headers["x-cache-items"] == cached
        assert len(member.seen) == 2


async def test_a_query_is_reranked_over_known_and_new_documents(tmp_path: Path) -> None:
    async with pooling(tmp_path) as (running, member):
        body = {"model": MODEL, "query": "q", "documents": ["aa", "b", "cccc"], "top_n": 1}
        first = await running.send(body, "/v1/rerank")
        assert [item["index"] for item in first.json["results"]] == [2]
        for path in ("/rerank", "/v2/rerank", "/v1/rerank"):
            again = await running.send({**body, "documents": ["ddd", "aa", "cccc"], "top_n": 3}, path)
            assert [item["index"] for item in again.json["results"]] == [2, 0, 1]
            assert again.json["results"][1]["document"] == {"text": "ddd"}
        assert [seen.fields["documents"] for seen in member.seen] == [["aa", "b", "cccc"], ["ddd"]]
        assert {seen.path for seen in member.seen} == {"/v1/rerank"}


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"text_1": "q", "text_2": ["a", "bb"]}, ["/v1/score", "/score"]),
        ({"input": ["a", "bb"]}, ["/classify", "/v1/classify"]),
        ({"input": ["a", "bb"]}, ["/pooling", "/v1/pooling"]),
        ({"prompt": "abc"}, ["/tokenize", "/v1/tokenize"]),
        ({"texts": ["a", "bb"]}, ["/v2/embed"]),
    ],
)
async def test_each_path_has_its_names_and_answers_again_from_the_cache(
    tmp_path: Path, body: dict[str, Any], paths: list[str]
) -> None:
    async with pooling(tmp_path) as (running, member):
        found = [await running.send({"model": MODEL, **body}, path) for path in (paths[0], *paths)]
        assert [answer.status for answer in found] == [200] * len(found)
        assert [answer.headers["x-cache"] for answer in found] == ["miss", *["exact"] * len(paths)]
        assert [seen.path for seen in member.seen] == [paths[0]]
        told = [{name: value for name, value in answer.json.items() if name in _ITEMS} for answer in found]
        assert told[0]
        assert all(each == told[0] for each in told)


_ITEMS = frozenset({"data", "embeddings", "tokens", "count", "texts"})


async def test_a_request_may_refuse_the_cache_and_a_purge_empties_it(tmp_path: Path) -> None:
    async with pooling(tmp_path) as (running, _):
        await embed(running, "a")
        fresh = await embed(running, "a", headers={"cache-control": "no-cache"})
        assert status(fresh) == ("miss", "0/1")
        await embed(running, "b", headers={"cache-control": "no-store"})
        assert status(await embed(running, "b")) == ("miss", "0/1")
        async with running.http.delete(f"/admin/cache?model={MODEL}") as response:
            assert response.status == 200

        async def asked_again() -> bool:
            return status(await embed(running, "a", headers={"x-cache-ttl": "0.001"})) == ("miss", "0/1")

        assert await eventually(asked_again, within_s=5)


async def test_without_a_cache_every_item_is_asked_for(tmp_path: Path) -> None:
    member = Member(pooling_engine)
    async with listening(member), gateway(others=[member.upstream(kind="vllm")]) as running:
        for _ in range(2):
            answer = await embed(running, "a", "bb")
            assert (lengths(answer), answer.headers["x-cache"]) == ([1, 2], "bypass")
    assert len(member.seen) == 2


async def test_an_answer_in_another_form_is_passed_on_and_not_kept(tmp_path: Path) -> None:
    member = Member(answers(200, {"vectors": 1}))
    async with listening(member), local_cache(tmp_path) as cache:
        others = [member.upstream(kind="vllm")]
        async with gateway(others=others, handles=cache.handles, **cache.args) as running:
            for _ in range(2):
                assert (await embed(running, "a")).json == {"vectors": 1}
    assert len(member.seen) == 2


async def test_a_refusal_of_the_engine_stays_one(tmp_path: Path) -> None:
    member = Member(answers(400, {"error": {"message": "too long", "code": "context"}}))
    async with listening(member), local_cache(tmp_path) as cache:
        others = [member.upstream(kind="vllm")]
        async with gateway(others=others, handles=cache.handles, **cache.args) as running:
            answer = await running.send({"model": MODEL, "input": "a"}, "/v1/embeddings")
            assert (answer.status, answer.error["message"]) == (400, "too long")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"input": ["a", "b", "c"]}, "input"),
        ("/classify", {"input": ["a", "b", "c"]}, "input"),
        ("/rerank", {"query": "q", "documents": ["a", "b", "c"]}, "documents"),
        ("/score", {"text_1": "q", "text_2": ["a", "b", "c"]}, "text_2"),
        ("/v2/embed", {"texts": ["a", "b", "c"]}, "texts"),
        ("/v2/embed", {"inputs": [{}, {}, {}]}, "inputs"),
        ("/v2/embed", {"images": ["data:,", "data:,", "data:,"]}, "images"),
        ("/v1/embeddings", {"messages": [[{"role": "user"}]] * 3}, "messages"),
        ("/pooling", {"input": [[{"role": "user"}]] * 3}, "input"),
        ("/detokenize", {"tokens": [*range(30)]}, "tokens"),
    ],
)
async def test_every_list_is_bounded(path: str, body: dict[str, Any], param: str) -> None:
    member = Member(pooling_engine)
    limits = {"max_embedding_inputs": 2, "max_prompts": 2, "max_embedding_characters": 20}
    async with listening(member):
        others = [member.upstream(kind="vllm", paths=list(ENGINE_PATHS))]
        async with gateway(others=others, limits=limits) as running:
            answer = await running.send({"model": MODEL, **body}, path)
            assert (answer.status, answer.error["param"]) == (400, param), answer.body
            assert "limits.max_" in answer.error["message"]
    assert member.seen == []
