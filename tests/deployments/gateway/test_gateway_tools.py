"""Requests with tools for a model whose engine reads no tool calls: told so, before an engine is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from sim_engine import SimEngine, SimSettings
from support.gateway import MODEL, Running, gateway, serving
from support.graph import eventually

from deployments.gateway.runtime import GatewayRuntime
from serve_app.fleet import EngineReport, EngineState
from serve_app.settings import parse_args

FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": FUNCTION}]}
NAMED = {"type": "function", "function": {"name": "look"}}


class Replica:
    """A deployment with one replica, and its report."""

    def __init__(self, url: str, *, takes_tools: bool) -> None:
        self._report = EngineReport(
            replica_id="e0",
            model=MODEL,
            url=url,
            headers={},
            state=EngineState.READY,
            capacity=8,
            takes_tools=takes_tools,
        )

    def broadcast(self, method: str, *_: Any) -> Replica:
        return self

    async def _fetch_replica_results_async(self) -> list[Replica]:
        return [self]

    async def get_async(self) -> EngineReport:
        return self._report


@asynccontextmanager
async def in_front_of(*, takes_tools: bool) -> AsyncIterator[Running]:
    """A gateway before a replica of its own."""
    model = {"id": MODEL, "source": "owner/model", "engine": {"accelerator": "cpu"}}
    settings = parse_args({"models": [model]}, source="test")
    engine = SimEngine(SimSettings(itl_ms=0, tokens=4, keep_bodies=9))
    async with AsyncExitStack() as stack:
        handle: Any = Replica(await engine.start(), takes_tools=takes_tools)
        stack.push_async_callback(engine.stop)
        runtime = GatewayRuntime(settings, None, {MODEL: handle})
        stack.push_async_callback(runtime.close)
        url = await stack.enter_async_context(serving(runtime.app))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))

        async def is_ready() -> bool:
            async with http.get("/ready") as response:
                return response.status == 200

        assert await eventually(is_ready, within_s=5)
        yield Running(http, (engine,), url)


CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"tool_choice": "auto"},
    {"tool_choice": "required"},
    {"tool_choice": NAMED},
)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("stream", [False, True])
async def test_tools_without_a_parser_are_refused_with_the_setting(
    choice: dict[str, Any], stream: bool
) -> None:
    async with in_front_of(takes_tools=False) as running:
        answer = await running.post("hi", stream=stream, **TOOLS, **choice)
        assert answer.status == 400
        assert (answer.error["param"], answer.error["code"]) == ("tools", "tools_not_supported")
        assert "`models[].engine.tools`" in answer.error["message"]
        assert MODEL in answer.error["message"]
        assert running.requests() == [0]


@pytest.mark.parametrize("fields", [{**TOOLS, "tool_choice": "none"}, {"tools": []}, {"tools": None}, {}])
async def test_what_needs_no_parser_passes(fields: dict[str, Any]) -> None:
    async with in_front_of(takes_tools=False) as running:
        assert (await running.post("hi", **fields)).status == 200


async def test_with_a_parser_and_at_an_upstream_tools_pass() -> None:
    async with in_front_of(takes_tools=True) as running:
        assert (await running.post("hi", **TOOLS)).status == 200
        seen = json.loads(running.engines[0].stats().seen[0]["body"])
        assert seen["tools"] == TOOLS["tools"]
    async with gateway(SimSettings(itl_ms=0, tokens=4)) as running:
        assert (await running.post("hi", **TOOLS)).status == 200
