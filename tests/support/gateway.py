"""The gateway in this process, in front of scripted engines over real HTTP: everything but Ray."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvicorn
from sim_engine import Faults, SimEngine, SimSettings

from deployments.gateway.external import external_upstreams
from deployments.gateway.runtime import GatewayRuntime
from serve_app.settings import parse_args

MODEL = "sim"
FAST = SimSettings(itl_ms=2.0, tokens=20)


@dataclass(frozen=True)
class Running:
    """A gateway, the engines behind it, and a client's session whose base URL it is."""

    http: aiohttp.ClientSession
    engines: tuple[SimEngine, ...]
    url: str

    async def post(self, text: str, headers: dict[str, str] | None = None, **fields: Any) -> Answered:
        """A whole answer, streamed or not."""
        body = chat(text, **fields)
        async with self.http.post("/v1/chat/completions", json=body, headers=headers) as response:
            return Answered(response.status, dict(response.headers), await response.read())

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as response:
            return await response.json()

    async def traffic(self) -> dict[str, int]:
        counted: dict[str, int] = await self.get("/admin/traffic")
        return counted


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


@asynccontextmanager
async def gateway(
    *settings: SimSettings,
    upstream: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    handles: dict[str, Any] | None = None,
    **args: Any,
) -> AsyncIterator[Running]:
    """One engine for each of ``settings``; ``upstream`` and ``model`` change their settings, ``args`` the
    application's; ``handles`` are what stands for the embedder and the cache."""
    async with AsyncExitStack() as stack:
        engines, members = [], []
        for number, each in enumerate(settings or (FAST,)):
            engine = SimEngine(each)
            url = await engine.start()
            stack.push_async_callback(engine.stop)
            engines.append(engine)
            known = {"name": f"e{number}", "url": f"{url}/v1", "kind": "vllm", "health_period_s": 0.05}
            members.append(known | (upstream or {}))
        models = [{"id": MODEL, "upstreams": members, **(model or {})}]
        parsed = parse_args({"models": models, **args}, source="test")
        external = external_upstreams(parsed, os.environ)
        runtime = GatewayRuntime(parsed, None, {}, external=external, **(handles or {}))
        stack.push_async_callback(runtime.close)
        url = await stack.enter_async_context(serving(runtime.app))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        running = Running(http, tuple(engines), url)
        await _until_ready(running)
        yield running


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """The app's URL while uvicorn serves it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # from now on a connection waits instead of being refused
        server = Embedded(uvicorn.Config(app, lifespan="off", log_config=None))
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        server.force_exit = True
        await task


async def _until_ready(running: Running) -> None:
    async with asyncio.timeout(10):
        while True:
            async with running.http.get("/ready") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.01)


class Embedded(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()


__all__ = ["FAST", "Answered", "Faults", "Running", "chat", "gateway"]
