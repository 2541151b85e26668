"""Over capacity the answer is 429 at once; the admitted are not disturbed."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from support.graph import AS_ADMIN, CHAT, Graph, chat, eventually


@pytest.fixture(scope="module")
def limited(deploy_ready: object) -> Graph:
    assert callable(deploy_ready)
    graph = deploy_ready("limited", {"limits": {"max_concurrent_requests": 1}})
    assert isinstance(graph, Graph)
    return graph


async def test_a_request_too_many_is_refused_at_once(http: aiohttp.ClientSession, limited: Graph) -> None:
    async def hang() -> int:
        headers = {"x-request-timeout-ms": "3000"}
        async with http.post(limited.url + CHAT, json=chat("hang before"), headers=headers) as response:
            return response.status

    admitted = asyncio.create_task(hang())

    async def is_running() -> bool:
        async with http.get(f"{limited.url}/admin/fleet", headers=AS_ADMIN) as response:
            return (await response.json())["scripted"][0]["in_flight"] == 1

    assert await eventually(is_running, within_s=5)
    async with http.post(limited.url + CHAT, json=chat("say one too many")) as response:
        assert response.status == 429
        assert int(response.headers["retry-after"]) >= 1
        assert (await response.json())["error"]["code"] == "over_capacity"
    async with http.get(f"{limited.url}/health") as response:
        assert response.status == 200
    assert await admitted == 504  # its own deadline ended it
    async with http.post(limited.url + CHAT, json=chat("say free again")) as response:
        assert response.status == 200
