"""One gateway of two is killed (SIGKILL) under streams: those of the other one are whole, and a client of the
killed one that asks again finds the beginning of its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
TOKENS, SLOW_MS, FAST_MS = 300, 400.0, 1.0
"""Two minutes an answer, which no slow machine outlasts, until the engine is told to hurry."""

BEGUN_TOKENS = 8
"""Of each stream, before the kill: three seconds. Gateways tell every second what their streams have said."""

BEGIN_WITHIN_S = 60.0
TRIES = 5
"""In the first seconds after a start the proxy may know one gateway only."""

END_WITHIN = aiohttp.ClientTimeout(total=150)
DONE = b"data: [DONE]\n\n"


def engine(model: ModelSettings) -> serve.Application:
    sim = {"model": model.id, "itl_ms": SLOW_MS, "tokens": TOKENS, "slots": 64, "keep_bodies": 4 * STREAMS}
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


def streams_at(gateway: psutil.Process, engine_port: int) -> int:
    """Connections to the engine; each carries one stream."""
    return sum(
        connection.status == psutil.CONN_ESTABLISHED
        and bool(connection.raddr)
        and connection.raddr.port == engine_port
        for connection in gateway.net_connections(kind="tcp")
    )


def pieces_of(body: bytes) -> list[str]:
    """The contents of the events that are whole."""
    events = [
        each.removeprefix(b"data: ") for each in body.split(b"\n\n")[:-1] if each.startswith(b"data: {")
    ]
    choices = [choice for each in events for choice in json.loads(each)["choices"]]
    return [content for choice in choices if (content := choice["delta"].get("content"))]


def text_of(body: bytes) -> str:
    return "".join(pieces_of(body))


async def test_a_gateway_of_two_is_killed_under_streams(
    http: aiohttp.ClientSession, deploy: Any, tmp_path: Path
) -> None:
    cache = {"path": str(tmp_path / "cache"), "lookup_budget_ms": 2000.0, "race": False}
    args = {"embedder": EMBEDDER, "cache": cache, "gateway": {"replicas": 2}}
    graph: Graph = await asyncio.to_thread(deploy, "two-gateways", args, (), engine)

    async def streamed(attempt: int, number: int, bodies: dict[int, bytes]) -> None:
        """All that comes, whole or not."""
        bodies[number] = b""
        said = chat(
            f"Attempt {attempt}, question {number}.", stream=True, stream_options={"include_usage": True}
        )
        with contextlib.suppress(aiohttp.ClientError):
            async with http.post(graph.url + CHAT, json=said, timeout=END_WITHIN) as response:
                async for part in response.content.iter_any():
                    bodies[number] += part

    async def is_ready() -> bool:
        async with http.get(f"{graph.url}/ready") as response:
            return response.status == 200 and len(gateways(graph.app)) == 2

    assert await eventually(is_ready, within_s=60)
    port = urlsplit((await graph.engine().describe.remote()).url).port
    assert port is not None
    victim, other = gateways(graph.app)
    bodies: dict[int, bytes] = {}

    async def all_have_begun() -> bool:
        begun = [number for number, body in bodies.items() if len(pieces_of(body)) >= BEGUN_TOKENS]
        return len(begun) == STREAMS

    for attempt in range(TRIES):
        bodies.clear()
        streams = [asyncio.create_task(streamed(attempt, number, bodies)) for number in range(STREAMS)]
        assert await eventually(all_have_begun, within_s=BEGIN_WITHIN_S), bodies
        held = streams_at(victim, port)
        if 0 < held < STREAMS:
            break
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    assert 0 < held < STREAMS == held + streams_at(other, port), "gateways do not share the streams"
    os.kill(victim.pid, signal.SIGKILL)
    await graph.engine().set_pace.remote(FAST_MS)
    await asyncio.gather(*streams)
    cut = [number for number, body in bodies.items() if not body.endswith(DONE)]
    assert len(cut) == held, "the other gateway's clients notice nothing"

    again: dict[int, bytes] = {}
    await asyncio.gather(*(streamed(attempt, number, again) for number in cut))
    for number in cut:
        assert again[number].endswith(DONE)
        assert text_of(bodies[number])
        assert text_of(again[number]).startswith(text_of(bodies[number]))
    seen = await graph.engine().seen.remote()
    assert [each["path"] for each in seen].count(RESUME_PATH) == held
