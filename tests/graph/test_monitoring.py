"""Two gateways in Serve: each shows what both have measured, on one page with Ray's own metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
import ray
from support.graph import AS_ADMIN, CHAT, Graph, chat, eventually

REQUESTS = 12
REPORTED_S = 25.0
"""Ray's processes report their metrics every ten seconds."""


@pytest.fixture(scope="module")
def two(deploy_ready: Callable[..., Graph]) -> Graph:
    return deploy_ready("two", {"gateway": {"replicas": 2}})


async def test_each_gateway_shows_what_all_have_measured(http: aiohttp.ClientSession, two: Graph) -> None:
    async def ask(number: int) -> None:
        async with http.post(two.url + CHAT, json=chat(f"say {number}", stream=True)) as response:
            assert response.status == 200
            await response.read()

    await asyncio.gather(*map(ask, range(REQUESTS)))

    async def shown() -> dict[str, Any]:
        async with http.get(f"{two.url}/admin/latency", headers=AS_ADMIN) as response:
            found: dict[str, Any] = await response.json()
        return found

    async def counted() -> bool:
        """A gateway counts a moment after an answer's end, and keeps its page for a second."""
        pages = [await shown() for _ in range(4)]  # whichever gateway answers
        models = [page["windows"]["5m"]["models"].get("scripted") for page in pages]
        return all(page["gateways"] == 2 for page in pages) and all(
            model is not None
            and model["counts"]["requests"] == REQUESTS
            and model["outcomes"]["answered"]["ttft"]["count"] == REQUESTS
            for model in models
        )

    assert await eventually(counted, within_s=20), await shown()


async def test_each_gateway_lists_the_newest_requests_of_all(http: aiohttp.ClientSession, two: Graph) -> None:
    asked = {f"listed-{number}" for number in range(REQUESTS)}

    async def ask(name: str) -> None:
        headers = {"x-request-id": name}
        async with http.post(two.url + CHAT, json=chat(name), headers=headers) as response:
            assert response.status == 200

    await asyncio.gather(*map(ask, asked))

    async def listed() -> set[str]:
        async with http.get(f"{two.url}/admin/requests?limit=500", headers=AS_ADMIN) as response:
            return {request["id"] for request in (await response.json())["requests"]}

    async def all_are() -> bool:
        return asked <= await listed()

    assert await eventually(all_are, within_s=10)
    for _ in range(4):  # whichever gateway answers
        assert asked <= await listed()


async def test_the_gateways_metrics_are_on_rays_page(http: aiohttp.ClientSession, two: Graph) -> None:
    node = ray.nodes()[0]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"

    async def there() -> bool:
        async with http.get(url) as response:
            page = await response.text()
        counted = "ray_promptly_requests_total{" in page and 'outcome="answered"' in page
        return counted and "ray_promptly_ttft_seconds_bucket{" in page and "ray_promptly_members{" in page

    assert await eventually(there, within_s=REPORTED_S)
