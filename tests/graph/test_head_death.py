"""A real Ray cluster of two nodes, whose head dies under streams and comes back with its store on disk."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from benchmarks.peers.nodes_app import ENGINE, MODEL
from benchmarks.peers.nodes_client import DONE, NodeClient, processes
from benchmarks.peers.ray_nodes import HEAD, WORKER, Place, RayNodes, ray_nodes
from support.graph import eventually

STREAMS = 8
TOKENS, ITL_MS = 150, 200.0  # half a minute an answer: longer than the head is away
PATIENCE_S = 120.0
SERVED_WITHIN_S = 10.0
"""A new request, while the head is away."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """The head has Ray's control store and Serve's controller; everything on the path of a request is on the
    other node."""
    storage = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(tmp_path_factory.mktemp("gcs"))}
    with ray_nodes(Place(HEAD), Place(WORKER, cpus=8, resources={ENGINE: 1}), env=storage) as nodes:
        nodes.deploy(
            model={"drain_timeout_s": 0.0},
            sim={"model": MODEL, "itl_ms": ITL_MS, "tokens": TOKENS, "slots": 64},
            settings={"responses": {"enabled": False}},
            proxies="EveryNode",
        )
        yield nodes


async def test_a_head_dies_under_streams_and_comes_back(cluster: RayNodes) -> None:
    client = NodeClient(cluster, WORKER)

    async def replicas() -> list[str]:
        return [member["replica"] for member in await client.members()]

    async def is_served() -> bool:
        return bool(await replicas())

    assert await eventually(is_served, within_s=PATIENCE_S)
    before = await replicas()
    streams = [asyncio.create_task(client.chat(f"Question {number}.", TOKENS)) for number in range(STREAMS)]

    async def all_run() -> bool:
        (member,) = await client.members()
        return int(member["in_flight"]) == STREAMS

    assert await eventually(all_run, within_s=PATIENCE_S)
    head = cluster.nodes[HEAD]
    await asyncio.to_thread(head.kill)
    async with asyncio.timeout(SERVED_WITHIN_S):
        assert DONE in await client.chat("While the head is away.", 5)
    await asyncio.to_thread(head.start)
    async with asyncio.timeout(SERVED_WITHIN_S):
        assert DONE in await client.chat("While the head comes back.", 5)
    whole = await asyncio.gather(*streams)
    assert [each[-200:] for each in whole if DONE not in each] == []
    assert await replicas() == before, "the same replicas go on"

    # The new controller knows the application: it replaces an engine that dies.
    (engine,) = processes(cluster, WORKER, f"Engine:{MODEL}")
    os.kill(engine.pid, signal.SIGKILL)

    async def replaced() -> bool:
        now = await replicas()
        return bool(now) and now != before

    assert await eventually(replaced, within_s=PATIENCE_S)
    assert DONE in await client.chat("After all of it.", 5)
