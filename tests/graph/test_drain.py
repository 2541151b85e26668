"""Replicas that Serve takes away finish what they have begun; no stream is cut."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from support.graph import AS_ADMIN, CHAT, Graph, chat, eventually
from support.scripted_engine import chat_events

WORDS = " ".join(f"w{number}" for number in range(1200))  # about three seconds
STREAMS = 8


def args(replicas: int, **model: Any) -> dict[str, Any]:
    known = {"id": "scripted", "source": "scripted", "engine": {"accelerator": "cpu"}}
    return {"models": [{**known, "drain_timeout_s": 30.0, "replicas": replicas, **model}]}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("scale-down", args(2), args(1)),
        # Another revision is another deployment: every replica is replaced.
        ("rolling-update", args(2), args(2, revision="next")),
    ],
)
async def test_a_graceful_drain_loses_nothing(
    http: aiohttp.ClientSession, deploy_ready: Any, name: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    graph: Graph = await asyncio.to_thread(deploy_ready, name, before)
    whole = b"".join(chat_events("scripted", "say", WORDS)) + b"data: [DONE]\n\n"

    async def stream() -> bytes:
        async with http.post(graph.url + CHAT, json=chat(f"say {WORDS}", stream=True)) as response:
            assert response.status == 200
            return await response.read()

    streams = [asyncio.create_task(stream()) for _ in range(STREAMS)]

    async def all_run() -> bool:
        async with http.get(f"{graph.url}/admin/fleet", headers=AS_ADMIN) as response:
            return sum(member["in_flight"] for member in (await response.json())["scripted"]) == STREAMS

    assert await eventually(all_run, within_s=10)
    update = asyncio.create_task(asyncio.to_thread(deploy_ready, name, after))
    assert all(body == whole for body in await asyncio.gather(*streams))
    await update
    async with http.post(graph.url + CHAT, json=chat("say after")) as response:
        assert response.status == 200
