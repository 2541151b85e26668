"""Models, embeddings, admin views."""

from __future__ import annotations

import base64
from typing import Any

import aiohttp
import numpy as np
import pytest
from support.graph import CHAT, Graph, chat, eventually


async def get(http: aiohttp.ClientSession, graph: Graph, path: str, tenant: str = "a") -> tuple[int, Any]:
    async with http.get(graph.url + path, headers=graph.headers(tenant)) as response:
        return response.status, await response.json()


async def embed(http: aiohttp.ClientSession, graph: Graph, **fields: Any) -> tuple[int, Any]:
    body = {"model": "minilm", **fields}
    async with http.post(f"{graph.url}/v1/embeddings", json=body, headers=graph.headers()) as response:
        return response.status, await response.json()


async def test_the_models_are_listed(http: aiohttp.ClientSession, main: Graph) -> None:
    status, body = await get(http, main, "/v1/models")
    assert status == 200
    assert [model["id"] for model in body["data"]] == ["scripted", "minilm"]
    assert (await get(http, main, "/v1/models/minilm"))[1]["id"] == "minilm"
    status, body = await get(http, main, "/v1/models/nope")
    assert status == 404
    assert "scripted, minilm" in body["error"]["message"]


async def test_embeddings_come_as_floats_and_as_base64(http: aiohttp.ClientSession, main: Graph) -> None:
    status, body = await embed(http, main, input=["a cat", "a dog", "a cat"])
    assert status == 200
    first, second, third = (np.array(item["embedding"]) for item in body["data"])
    assert [item["index"] for item in body["data"]] == [0, 1, 2]
    assert np.linalg.norm(first) == pytest.approx(1, abs=1e-5)
    assert first @ third == pytest.approx(1, abs=1e-5)
    assert 0.3 < first @ second < 0.95
    assert body["usage"] == {"prompt_tokens": 12, "total_tokens": 12}  # [CLS] a cat [SEP], three times
    _, encoded = await embed(http, main, input="a cat", encoding_format="base64")
    decoded = np.frombuffer(base64.b64decode(encoded["data"][0]["embedding"]), dtype="<f4")
    assert decoded == pytest.approx(first, abs=1e-5)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1, 2]}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 7}, "dimensions"),
        ({"input": ["a", "word " * 300]}, "input[1]"),
        ({"input": "a", "model": 5}, "model"),
    ],
)
async def test_a_wrong_embedding_request_names_its_field(
    http: aiohttp.ClientSession, main: Graph, fields: dict[str, Any], param: str
) -> None:
    status, body = await embed(http, main, **fields)
    assert status == 400
    assert body["error"]["param"] == param


async def test_the_admin_sees_fleet_and_latencies(http: aiohttp.ClientSession, main: Graph) -> None:
    async with http.post(main.url + CHAT, json=chat("say seen"), headers=main.headers()) as response:
        assert response.status == 200
        await response.read()
    _, fleet = await get(http, main, "/admin/fleet", "admin")
    (member,) = fleet["scripted"]
    assert member["state"] == "ready"
    assert member["can_serve"] is True
    assert member["reported_ago_s"] < 5
    latency: dict[str, Any] = {}

    async def is_measured() -> bool:
        """What measures requests sees one a moment after its end."""
        nonlocal latency
        _, latency = await get(http, main, "/admin/latency", "admin")
        return {"admit", "route", "upstream-ttft", "total"} <= latency.keys()

    assert await eventually(is_measured, within_s=20), latency.keys()
    assert latency["total"]["p50"] <= latency["total"]["p99"]


@pytest.mark.parametrize(
    ("method", "query", "param"),
    [
        ("GET", "?colour=red", "colour"),
        ("GET", "?id=x", "id"),
        ("DELETE", "", "id"),
        ("DELETE", "?tenant=&model=scripted", "tenant"),
    ],
)
async def test_a_wrong_admin_query_names_its_parameter(
    http: aiohttp.ClientSession, main: Graph, method: str, query: str, param: str
) -> None:
    url = f"{main.url}/admin/cache{query}"
    async with http.request(method, url, headers=main.headers("admin")) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == param
