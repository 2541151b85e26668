"""Keys through HTTP."""

from __future__ import annotations

import aiohttp
import pytest
from support.graph import CHAT, Graph, chat


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/tokenize", "/v1/other"])
@pytest.mark.parametrize("header", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic eDp5"}])
async def test_without_a_known_key_the_answer_is_401(
    http: aiohttp.ClientSession, main: Graph, path: str, header: dict[str, str]
) -> None:
    async with http.post(main.url + path, json=chat("say hi"), headers=header) as response:
        body = await response.json()
    assert response.status == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert body["error"]["type"] == "authentication_error"


async def test_with_a_key_the_answer_is_200(http: aiohttp.ClientSession, main: Graph) -> None:
    async with http.post(main.url + CHAT, json=chat("say keyed"), headers=main.headers("b")) as response:
        assert response.status == 200


@pytest.mark.parametrize("path", ["/admin/cache", "/admin/fleet", "/admin/latency"])
async def test_administration_needs_an_admin_key(http: aiohttp.ClientSession, main: Graph, path: str) -> None:
    for tenant, status in (("a", 403), ("admin", 200)):
        async with http.get(main.url + path, headers=main.headers(tenant)) as response:
            assert response.status == status
    async with http.get(main.url + path) as response:
        assert response.status == 401


async def test_health_and_readiness_need_no_key(http: aiohttp.ClientSession, main: Graph) -> None:
    for path in ("/health", "/ready"):
        async with http.get(main.url + path) as response:
            assert response.status == 200
