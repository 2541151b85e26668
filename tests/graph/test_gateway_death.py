"""One gateway of two is killed (SIGKILL) under streams: those of the other one are whole, and a client of the
killed one that asks again finds the beginning of its answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from benchmarks.peers.nodes_app import scripted
from ray import serve
from support.graph import CHAT, Graph, chat, eventually

from serve_app.openai.continuation import RESUME_PATH
from serve_app.settings import ModelSettings
from serve_app.settings.network import ANY_PORT

EMBEDDER = {"id": "minilm", "source": "sentence-transformers/all-MiniLM-L6-v2", "threads": 1}
STREAMS = 16
TOKENS, ITL_MS = 120, 50.0  # six seconds an answer
TOLD_S = 2.0
"""Gateways tell every second what their streams have said."""


def engine(model: ModelSettings) -> serve.Application:
    sim = {"model": model.id, "itl_ms": ITL_MS, "tokens": TOKENS, "slots": 64, "keep_bodies": 4 * STREAMS}
    return scripted(model, sim, ANY_PORT, ray_actor_options={"num_cpus": 0.1})


def gateways(app: str) -> list[psutil.Process]:
    name = f"ServeReplica:{app}:Gateway"
    return [each for each in psutil.Process().children(recursive=True) if name in " ".join(cmdline(each))]


def cmdline(process: psutil.Process) -> list[str]:
    try:
        line: list[str] = process.cmdline()
        return line
    except psutil.Error:
        return []


def streams_at(gateway: psutil.Process) -> int:
    """Connections to the engine; each carries one stream."""
    pairs = Counter(
        connection.raddr
        for connection in gateway.net_connections(kind="tcp")
        if connection.status == psutil.CONN_ESTABLISHED and connection.raddr
    )
    return max(pairs.values(), default=0)


def text_of(body: bytes) -> str:
    events = [each.removeprefix(b"data: ") for each in body.split(b"\n\n") if each.startswith(b"data: {")]
    choices = [choice for each in events for choice in json.loads(each)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def test_a_gateway_of_two_is_killed_under_streams(
    http: aiohttp.ClientSession, deploy: Any, tmp_path: Path
) -> None:
    cache = {"path": str(tmp_path / "cache"), "lookup_budget_ms": 2000.0, "race": False}
    args = {"embedder": EMBEDDER, "cache": cache, "gateway": {"replicas": 2}}
    graph: Graph = await asyncio.to_thread(deploy, "two-gateways", args, (), engine)

    async def streamed(number: int) -> bytes:
        """All that came, whole or not."""
        body, said = b"", chat(f"Question {number}.", stream=True, stream_options={"include_usage": True})
        try:
            async with http.post(graph.url + CHAT, json=said) as response:
                async for part in response.content.iter_any():
                    body += part
        except aiohttp.ClientError:
            pass
        return body

    async def is_ready() -> bool:
        async with http.get(f"{graph.url}/ready") as response:
            return response.status == 200 and len(gateways(graph.app)) == 2

    assert await eventually(is_ready, within_s=60)
    streams = [asyncio.create_task(streamed(number)) for number in range(STREAMS)]

    async def both_have_streams() -> bool:
        counts = [streams_at(each) for each in gateways(graph.app)]
        return sum(counts) == STREAMS and all(counts)

    assert await eventually(both_have_streams, within_s=10), "gateways do not share the streams"
    await asyncio.sleep(TOLD_S)
    victim = gateways(graph.app)[0]
    held = streams_at(victim)
    os.kill(victim.pid, signal.SIGKILL)
    bodies = await asyncio.gather(*streams)
    cut = [number for number, body in enumerate(bodies) if not body.endswith(b"data: [DONE]\n\n")]
    assert len(cut) == held, "the other gateway's clients notice nothing"

    again = await asyncio.gather(*(streamed(number) for number in cut))
    for number, body in zip(cut, again, strict=True):
        assert body.endswith(b"data: [DONE]\n\n")
        assert text_of(bodies[number])
        assert text_of(body).startswith(text_of(bodies[number]))
    seen = await graph.engine().seen.remote()
    assert [each["path"] for each in seen].count(RESUME_PATH) == held
