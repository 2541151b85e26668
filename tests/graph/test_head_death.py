"""A real Ray cluster of two nodes, whose head dies under streams and comes back with its store on disk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from benchmarks.peers.endpoint import as_admin
from benchmarks.peers.nodes_app import ENGINE, MODEL
from benchmarks.peers.ray_nodes import HEAD, WORKER, Place, RayNodes, ray_nodes
from support.graph import CHAT, eventually

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


class Client:
    """Connections to the proxy of the node that stays. Both nodes are on one machine, so their proxies share
    a port, and the kernel chooses."""

    def __init__(self, cluster: RayNodes) -> None:
        self._cluster = cluster
        self._port = urlsplit(cluster.url).port or 0

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                local = writer.get_extra_info("sockname")[1]
                if await asyncio.to_thread(self._is_at_the_worker, local):
                    return reader, writer
                writer.close()

    def _is_at_the_worker(self, local: int) -> bool:
        return any(
            connection.raddr and connection.raddr.port == local
            for process in processes(self._cluster, "Proxy")
            for connection in process.net_connections(kind="tcp")
        )

    async def asked(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The whole response, head and all; of a broken one what came."""
        reader, writer = await self.connected()
        data = b"" if body is None else json.dumps(body).encode()
        named = "".join(f"{name}: {value}\r\n" for name, value in as_admin().items())
        head = f"{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{named}"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        try:
            return await reader.read()
        finally:
            writer.close()

    async def chat(self, question: str, tokens: int) -> bytes:
        message = {"role": "user", "content": question}
        return await self.asked(
            "POST", CHAT, {"model": MODEL, "messages": [message], "max_tokens": tokens, "stream": True}
        )

    async def members(self) -> list[str]:
        said = await self.asked("GET", "/admin/fleet")
        found = json.loads(said.partition(b"\r\n\r\n")[2])[MODEL]
        return [member["replica"] for member in found if member["can_serve"]]


def processes(cluster: RayNodes, name: str) -> list[psutil.Process]:
    """Of the node that stays."""
    found = []
    for pid in cluster.nodes[WORKER].pids:
        try:
            process = psutil.Process(pid)
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


async def test_a_head_dies_under_streams_and_comes_back(cluster: RayNodes) -> None:
    client = Client(cluster)

    async def is_served() -> bool:
        return bool(await client.members())

    assert await eventually(is_served, within_s=PATIENCE_S)
    before = await client.members()
    streams = [asyncio.create_task(client.chat(f"Question {number}.", TOKENS)) for number in range(STREAMS)]

    async def all_run() -> bool:
        said = await client.asked("GET", "/admin/fleet")
        (member,) = json.loads(said.partition(b"\r\n\r\n")[2])[MODEL]
        return int(member["in_flight"]) == STREAMS

    assert await eventually(all_run, within_s=PATIENCE_S)
    head = cluster.nodes[HEAD]
    await asyncio.to_thread(head.kill)
    async with asyncio.timeout(SERVED_WITHIN_S):
        assert b"[DONE]" in await client.chat("While the head is away.", 5)
    await asyncio.to_thread(head.start)
    async with asyncio.timeout(SERVED_WITHIN_S):
        assert b"[DONE]" in await client.chat("While the head comes back.", 5)
    whole = await asyncio.gather(*streams)
    assert [each[-200:] for each in whole if b"data: [DONE]" not in each] == []
    assert await client.members() == before, "the same replicas go on"

    # The new controller knows the application: it replaces an engine that dies.
    (engine,) = processes(cluster, f"Engine:{MODEL}")
    os.kill(engine.pid, signal.SIGKILL)

    async def replaced() -> bool:
        now = await client.members()
        return bool(now) and now != before

    assert await eventually(replaced, within_s=PATIENCE_S)
    assert b"[DONE]" in await client.chat("After all of it.", 5)
