"""Promptly on a cluster of ``ray_nodes``, with engines that compute nothing on the nodes that have room for
one: ``python -m benchmarks.peers.nodes_app JSON`` deploys it and ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, cast

import ray
from ray import serve
from sim_engine import SimEngine, SimSettings
from sim_engine.connection import Connection
from starlette.types import Receive, Scope, Send

from deployments.graph import build_graph, engine_options
from deployments.platform.serve import node_address
from deployments.wire.listener import PrivateListener, read_body
from serve_app.fleet import EngineReport, EngineState
from serve_app.openai.continuation import TokenLimits
from serve_app.settings import ModelSettings, parse_args

ENGINE = "engine"
"""The Ray resource of which every engine takes one."""

MODEL = "scripted"


class SimReplica:
    """A replica whose engine is scripted; its listener is the real one."""

    async def __init__(self, model: ModelSettings, sim: dict[str, Any], ports: range) -> None:  # type: ignore[misc]  # Serve awaits it
        self._model = model
        self._sim = SimEngine(SimSettings(**sim))
        self._listener = PrivateListener(self._answer, node_address(), ports=ports)
        self._listener.start()

    async def describe(self) -> EngineReport:
        stats, address = self._sim.stats(), self._listener.address
        return EngineReport(
            replica_id=serve.get_replica_context().replica_id.unique_id,
            model=self._model.id,
            url=address.url,
            headers={},
            secret=address.secret,
            socket="",  # the nodes share a disk; on two machines there would be no such file
            state=EngineState.READY,
            running=stats.running,
            waiting=stats.waiting,
            capacity=self._sim.settings.slots,
            resumes_chats=True,
            token_limits=TokenLimits(context=self._sim.settings.max_model_len),
            paths=frozenset(self._model.paths),
        )

    async def seen(self) -> list[dict[str, Any]]:
        """The newest requests, as many as ``keep_bodies`` says."""
        return list(self._sim.stats().seen)

    async def set_pace(self, itl_ms: float) -> None:
        self._sim.scheduler.set_pace(itl_ms)

    async def __del__(self) -> None:
        await self._listener.stop(self._model.drain_timeout_s)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        client = AsgiClient()
        self._sim.handle(cast("Connection", client), f"{scope['method']} {scope['path']}", headers, body)
        leaving = asyncio.ensure_future(receive())
        try:
            await client.pass_on(send, leaving)
        finally:
            leaving.cancel()
            if client.answer is not None:
                self._sim.scheduler.abort(client.answer)


class AsgiClient:
    """An adapter: the scripted engine sees a connection, and the listener sees an ASGI app that answers."""

    def __init__(self) -> None:
        self.answer: Any = None
        self._status = 200
        self._type = b"application/json"
        self._written: asyncio.Queue[bytes | None] = asyncio.Queue()

    def write(self, data: bytes) -> None:
        self._written.put_nowait(data)

    def start_stream(self) -> None:
        self._type = b"text/event-stream; charset=utf-8"
        self._written.put_nowait(b"")

    def end_stream(self, events: bytes) -> None:
        self.answer = None
        self._written.put_nowait(events)
        self._written.put_nowait(None)

    def respond(self, status: int, body: bytes) -> None:
        self.answer, self._status = None, status
        self._written.put_nowait(body)
        self._written.put_nowait(None)

    async def pass_on(self, send: Send, leaving: asyncio.Future[Any]) -> None:
        """Pass the answer on until it ends, or its client has left."""
        leaving.add_done_callback(lambda _: self._written.put_nowait(None))
        data = await self._written.get()
        headers = [(b"content-type", self._type)]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        while data is not None:
            await send({"type": "http.response.body", "body": unframed(data), "more_body": True})
            data = await self._written.get()
        await send({"type": "http.response.body", "body": b""})


def unframed(data: bytes) -> bytes:
    """The bytes without HTTP chunking: the engine writes HTTP chunks for a stream, and bare bytes
    otherwise."""
    parts = []
    while data:
        length, line_end, rest = data.partition(b"\r\n")
        if not line_end:
            return data
        size = int(length, 16)
        parts.append(rest[:size])
        data = rest[size + 2 :]
    return b"".join(parts)


def scripted(model: ModelSettings, sim: dict[str, Any], ports: range, **options: Any) -> serve.Application:
    """A model's engine deployment with scripted replicas; ``options``: Serve's, before those of an engine."""
    wrap = serve.deployment(name=f"Engine:{model.id}", **(engine_options(model) | options))
    replica: serve.Deployment = wrap(cast("type[Any]", SimReplica))
    return replica.bind(model, sim, ports)


def deploy(given: dict[str, Any]) -> None:
    ray.init(given["address"], _node_ip_address=given["node"], log_to_driver=False, configure_logging=False)
    proxies = given.get("proxies", "HeadOnly")
    serve.start(proxy_location=proxies, http_options={"host": "127.0.0.1", "port": given["port"]})
    model = {"id": MODEL, "source": MODEL, "engine": {"accelerator": "cpu"}, **given.get("model", {})}
    settings = parse_args({"models": [model], **given.get("settings", {})}, source="nodes_app")
    ports = settings.network.private_ports

    def engine(model: ModelSettings) -> serve.Application:
        actor = {"num_cpus": 0, "resources": {ENGINE: 1}}
        sim = given.get("sim", {})
        return scripted(model, sim, ports, ray_actor_options=actor, health_check_period_s=1.0)

    serve.run(build_graph(settings, os.environ, engine=engine), name="promptly", route_prefix="/")


if __name__ == "__main__":
    deploy(json.loads(sys.argv[1]))
