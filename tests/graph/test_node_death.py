"""A real Ray cluster of two nodes, one of which dies under streams and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from benchmarks.peers.endpoint import as_admin
from benchmarks.peers.nodes_app import ENGINE, MODEL
from benchmarks.peers.ray_nodes import HEAD, WORKER, Place, RayNodes, ray_nodes
from support.gateway import DONE, Answered
from support.graph import CHAT, eventually

STREAMS = 16
TOKENS, ITL_MS = 200, 50.0  # ten seconds an answer
PORTS = {"min_port": 24000, "max_port": 24063}
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """Gateway, proxy and Serve's controller are on the head node; each node has an engine."""
    places = Place(HEAD, cpus=8, resources={ENGINE: 1}), Place(WORKER, resources={ENGINE: 1})
    with ray_nodes(*places) as nodes:
        nodes.deploy(
            model={"replicas": 2, "drain_timeout_s": 0.0},
            sim={"model": MODEL, "itl_ms": ITL_MS, "tokens": TOKENS, "slots": 64},
            settings={"network": PORTS, "responses": {"enabled": False}},
        )
        yield nodes


@pytest.fixture
async def http(cluster: RayNodes) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(cluster.url, headers=as_admin(), timeout=timeout) as session:
        yield session


async def members(http: aiohttp.ClientSession) -> list[dict[str, Any]]:
    async with http.get("/admin/fleet") as response:
        found: list[dict[str, Any]] = (await response.json())[MODEL]
        return [member for member in found if member["can_serve"]]


def node_of(member: dict[str, Any]) -> str:
    return urlsplit(member["url"]).hostname or ""


async def asked(http: aiohttp.ClientSession, number: int, **fields: Any) -> Answered:
    message = {"role": "user", "content": f"Question {number}."}
    body = {"model": MODEL, "messages": [message], "max_tokens": TOKENS, "stream": True, **fields}
    async with http.post(CHAT, json=body) as response:
        return Answered(response.status, response.headers, await response.read())


async def until_on_both(http: aiohttp.ClientSession) -> None:
    async def both() -> bool:
        return {node_of(member) for member in await members(http)} == {HEAD, WORKER}

    assert await eventually(both, within_s=PATIENCE_S), await members(http)


async def test_a_node_dies_under_streams_and_comes_back(
    cluster: RayNodes, http: aiohttp.ClientSession
) -> None:
    await until_on_both(http)
    listeners = [urlsplit(member["url"]) for member in await members(http)]
    assert all(PORTS["min_port"] <= (each.port or 0) <= PORTS["max_port"] for each in listeners)

    streams = [asyncio.create_task(asked(http, number)) for number in range(STREAMS)]

    async def all_run() -> bool:
        taken = {node_of(member): member["in_flight"] for member in await members(http)}
        return sum(taken.values()) == STREAMS and taken.get(WORKER, 0) > 0

    assert await eventually(all_run, within_s=PATIENCE_S), await members(http)
    await asyncio.to_thread(cluster.nodes[WORKER].kill)
    survived = await asyncio.gather(*streams)
    assert all(each.events[-1] == DONE for each in survived)
    async with http.get("/admin/traffic") as response:
        traffic = await response.json()
    assert traffic["continued"] > 0
    assert traffic["cut"] == 0

    # New requests are served, and what was continued is what one engine says.
    again = await asyncio.gather(*[asked(http, number) for number in range(STREAMS)])
    assert [each.text for each in again] == [each.text for each in survived]
    assert [node_of(member) for member in await members(http)] == [HEAD]

    await asyncio.to_thread(cluster.nodes[WORKER].start)
    await until_on_both(http)
    returned = await asyncio.gather(*[asked(http, number, max_tokens=20) for number in range(STREAMS)])
    served = {each.headers["x-served-by"] for each in returned}
    assert served == {member["replica"] for member in await members(http)}
    assert all(each.text for each in returned)
