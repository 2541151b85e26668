"""The gateway in this process, in front of scripted engines over real HTTP: everything but Ray."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import uvicorn
from sim_engine import Faults, SimEngine, SimSettings

from deployments.gateway.others.others import GatewayReport
from deployments.gateway.placement.external import external_upstreams
from deployments.gateway.request.finished import Sink
from deployments.gateway.runtime import GatewayRuntime
from deployments.platform.http_protocol import mend_http
from deployments.platform.websocket_protocol import bound_websockets
from serve_app.monitoring.metrics import Meter
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import KeySources, make_key
from serve_app.settings import parse_args
from support.graph import ADMIN_TOKEN, AS_ADMIN, CHAT, eventually

T = TypeVar("T")

MODEL = "sim"
FAST = SimSettings(itl_ms=2.0, tokens=20)
COMPLETIONS = "/v1/completions"
OWN_ENGINE = {"source": "owner/model", "engine": {"accelerator": "cpu"}}
ADMIN = "admin"
DONE = b"[DONE]"


@dataclass(frozen=True)
class Answered:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """Of an error response."""
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def events(self) -> list[bytes]:
        """The data of a stream's events, which must be nothing but whole ``data:`` lines."""
        *events, rest = self.body.split(b"\n\n")
        assert rest == b"", f"the stream ends inside an event: {rest!r}"
        assert all(event.startswith(b"data: ") for event in events), events
        return [event.removeprefix(b"data: ") for event in events]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events of a stream that ended well, without its ``[DONE]``."""
        assert self.status == 200, self.body
        *events, done = self.events
        assert done == DONE, self.events[-3:]
        return [json.loads(event) for event in events]

    @property
    def text(self) -> str:
        """What an answer says, streamed or not. Raises AssertionError for anything but a complete answer."""
        assert self.status == 200, self.body
        if not self.headers["content-type"].startswith("text/event-stream"):
            return text_of([self.json])
        assert not any("error" in chunk for chunk in self.chunks), self.events[-1]
        return text_of(self.chunks)

    @property
    def cut(self) -> dict[str, Any]:
        """The error that ended a stream, which must be its last event and its only one of that kind."""
        assert self.status == 200, self.body
        *before, last = self.events
        assert DONE not in before
        assert not any(event.startswith(b'{"error"') for event in before), self.events
        error: dict[str, Any] = json.loads(last)["error"]
        return error


class Stream:
    """A streamed response while it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._received = b""

    @property
    def headers(self) -> Mapping[str, str]:
        return self.response.headers

    async def event(self) -> bytes:
        """The data of the next event."""
        async with asyncio.timeout(10):
            while b"\n\n" not in self._received:
                part = await self.response.content.readany()
                assert part, f"the stream ended: {self._received!r}"
                self._received += part
        data, _, self._received = self._received.partition(b"\n\n")
        return data.removeprefix(b"data: ")

    async def rest(self) -> Answered:
        async with asyncio.timeout(20):
            body = self._received + await self.response.read()
        return Answered(self.response.status, self.response.headers, body)

    def leave(self) -> None:
        """Close the connection."""
        self.response.close()


@dataclass(frozen=True)
class Running:
    """A gateway, the engines behind it, and a client's session whose base URL it is.

    ``keys`` are those of the tenants, if there are any.
    """

    http: aiohttp.ClientSession
    engines: tuple[SimEngine, ...]
    url: str
    keys: Mapping[str, str] = field(default_factory=dict)

    def headers(self, tenant: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[tenant]}"}

    async def send(
        self, body: dict[str, Any], path: str = CHAT, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """A whole answer, streamed or not."""
        async with self.http.post(path, json=body, headers=headers) as response:
            return Answered(response.status, response.headers, await response.read())

    async def post(self, text: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Answered:
        """A whole answer to a chat, streamed or not."""
        return await self.send(chat(text, **fields), headers=headers)

    @asynccontextmanager
    async def stream(
        self, text: str, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> AsyncIterator[Stream]:
        """A streamed chat whose headers are there; the connection is closed at the end."""
        body = chat(text, stream=True, **fields)
        async with self.http.post(CHAT, json=body, headers=headers) as response:
            yield Stream(response)
            response.close()

    async def get(self, path: str) -> Any:
        headers = self.headers(ADMIN) if self.keys else None
        async with self.http.get(path, headers=headers) as response:
            return await response.json()

    async def traffic(self) -> dict[str, int]:
        counted: dict[str, int] = await self.get("/admin/traffic")
        return counted

    async def member(self, number: int = 0) -> dict[str, Any]:
        """What the gateway knows of an engine."""
        members = (await self.get("/admin/fleet"))[MODEL]
        return next(member for member in members if member["replica"] == f"e{number}")

    async def in_flight(self) -> int:
        """Requests that the gateway takes to be at its members."""
        return sum(member["in_flight"] for member in (await self.get("/admin/fleet"))[MODEL])

    async def until_idle(self) -> None:
        """Every place at every member is free again."""

        async def idle() -> bool:
            return await self.in_flight() == 0

        assert await eventually(idle, within_s=5), await self.get("/admin/fleet")

    async def until_traffic(self, check: Callable[[dict[str, int]], bool]) -> None:
        """The counters are so."""

        async def so() -> bool:
            return check(await self.traffic())

        assert await eventually(so, within_s=5), await self.traffic()

    async def until_serving(self, number: int, serving: bool) -> None:
        """The gateway takes an engine for one that can serve, or for one that cannot."""

        async def so() -> bool:
            return bool((await self.member(number))["can_serve"]) is serving

        assert await eventually(so, within_s=5), await self.member(number)

    def requests(self) -> list[int]:
        """How many each engine was sent."""
        return [engine.stats().requests for engine in self.engines]


class Band:
    """Several gateways of one application."""

    def __init__(self) -> None:
        self.runtimes: list[GatewayRuntime] = []

    async def meet(self) -> None:
        """All know of one another; they need not wait for a round. A share grows after two."""
        await self.look()
        await self.look()

    async def look(self) -> None:
        """A round of all."""
        for runtime in self.runtimes:
            await runtime.together.look()

    async def reports(self) -> list[GatewayReport]:
        found = [runtime.together.report() for runtime in self.runtimes]
        return [report for report in found if report is not None]


class Closable:
    """A context that is entered and left in one task of its own, whenever that is."""

    def __init__(self, context: AbstractAsyncContextManager[Running]) -> None:
        self._context = context
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._run())

    async def open(self) -> Running:
        await asyncio.wait([self._task, self._opened], return_when=asyncio.FIRST_COMPLETED)
        return await (self._opened if self._opened.done() else self._task)

    async def close(self) -> None:
        self._closing.set()
        await self._task

    async def _run(self) -> Any:
        async with self._context as running:
            self._opened.set_result(running)
            await self._closing.wait()


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """``work`` as a task, which does not outlive the block."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


def as_sent(body: str | bytes) -> dict[str, Any]:
    """The fields that reached an engine, without what the gateway adds behind the client's own: the tenant's
    salt and, behind that, the wish for usage."""
    fields: dict[str, Any] = json.loads(body)
    if "cache_salt" not in fields:
        return fields
    names = list(fields)
    added = {"cache_salt", "stream_options"} & set(names[names.index("cache_salt") :])
    return {name: value for name, value in fields.items() if name not in added}


def text_of(chunks: Sequence[Mapping[str, Any]]) -> str:
    """Of a chat or a text completion, streamed or not."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    parts = [choice.get("text") or choice.get("delta") or choice.get("message") or "" for choice in choices]
    return "".join(part if isinstance(part, str) else part.get("content") or "" for part in parts)


@asynccontextmanager
async def gateway(
    *settings: SimSettings,
    upstream: Mapping[str, Any] | None = None,
    upstreams: Sequence[Mapping[str, Any]] = (),
    others: Sequence[Mapping[str, Any]] = (),
    model: Mapping[str, Any] | None = None,
    more_models: Sequence[Mapping[str, Any]] = (),
    handles: Mapping[str, Any] | None = None,
    deployed: Any = None,
    tenants: Sequence[str] = (),
    key_sources: KeySources | None = None,
    rights: Mapping[str, Mapping[str, Any]] | None = None,
    ready: bool = True,
    tenant_secret: bytes | None = None,
    client_secret: str | None = None,
    sinks: Sequence[Sink] = (),
    meter: Meter | None = None,
    guard_headers: Mapping[str, Mapping[str, str]] | None = None,
    band: Band | None = None,
    **args: Any,
) -> AsyncIterator[Running]:
    """One engine for each of ``settings``, named ``e0``, ``e1``, …

    ``upstream`` changes the settings of all, ``upstreams`` those of each; ``others`` are upstreams that run
    already, ``model`` and ``args`` the settings of the model and of the application, ``more_models`` those of
    other models. ``handles`` stand for the embedder and the cache, ``deployed`` for an engine's deployment of
    one replica, which then serves the model alone. With ``tenants`` (and one administrator) keys are needed;
    ``rights`` are what some of these may do, ``key_sources`` are keys of the test's own; ``sinks`` get the
    records of finished requests. ``band``: it is one of several gateways. ``ready``: wait until every
    member can serve.
    """
    async with AsyncExitStack() as stack:
        engines, members = [], []
        for number, each in enumerate(settings or (() if others or deployed else (FAST,))):
            engine = SimEngine(each)
            url = await engine.start()
            stack.push_async_callback(engine.stop)
            engines.append(engine)
            own = upstreams[number] if upstreams else {}
            members.append(_upstream(f"e{number}", url) | dict(upstream or {}) | dict(own))
        members += [_upstream("other", "") | dict(other) for other in others]
        keys, sources = _keys(tenants, rights or {})
        sources = sources if key_sources is None else key_sources
        served = {"upstreams": members} if deployed is None else OWN_ENGINE
        models = [{"id": MODEL, **served, **(model or {})}, *map(dict, more_models)]
        auth = {"auth": {"keys_env": "KEYS"}} if tenants else {}
        parsed = parse_args({"models": models, **auth, **args}, source="test")
        if sources is None and parsed.accounts is not None:
            sources = KeySources()  # as for settings without other keys
        external = external_upstreams(parsed, os.environ)
        runtime = GatewayRuntime(
            parsed,
            sources,
            {} if deployed is None else {MODEL: deployed},
            external=external,
            tenant_secret=tenant_secret,
            admin_token=AdminToken.of(ADMIN_TOKEN) if parsed.has_admin_token else None,
            client_secret=client_secret,
            sinks=sinks,
            meter=meter,
            guard_headers=guard_headers,
            **({} if band is None else {"ask_gateways": band.reports, "host": "127.0.0.1"}),
            **(handles or {}),
        )
        if band is not None:
            band.runtimes.append(runtime)
            stack.callback(band.runtimes.remove, runtime)
        stack.push_async_callback(runtime.close)
        mend_http()  # as the deployment does
        bound_websockets(parsed.realtime.max_event_bytes)
        url = await stack.enter_async_context(serving(runtime.app))
        http = await stack.enter_async_context(aiohttp.ClientSession(url, headers={} if keys else AS_ADMIN))
        running = Running(http, tuple(engines), url, keys)
        if ready:
            await _until_ready(running, len(members) if deployed is None else 1)
        yield running


def _upstream(name: str, url: str) -> dict[str, Any]:
    return {"name": name, "url": f"{url}/v1", "kind": "vllm", "health_period_s": 0.05}


def _keys(
    tenants: Sequence[str], rights: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], KeySources | None]:
    if not tenants:
        return {}, None
    given = {ADMIN: {"admin": True}, **rights}
    made = {tenant: make_key(tenant, **given.get(tenant, {})) for tenant in (*tenants, ADMIN)}
    return {tenant: key for tenant, (key, _) in made.items()}, KeySources(
        in_file=tuple(record for _, record in made.values())
    )


@asynccontextmanager
async def serving(app: Any, **config: Any) -> AsyncIterator[str]:
    """The app's URL while uvicorn serves it; ``config`` is uvicorn's."""
    # Told the protocol, asyncio sends small writes at once; else each waits for the last one's ACK.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # from now on a connection waits instead of being refused
        server = Embedded(uvicorn.Config(app, lifespan="off", log_config=None, **config))
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stopping.set()
            await task


async def _until_ready(running: Running, members: int) -> None:
    async with asyncio.timeout(10):
        while True:
            async with running.http.get("/ready") as response:
                known = (await response.json())["ready_replicas"][MODEL]
                if response.status == 200 and known == members:
                    return
            await asyncio.sleep(0.005)


class Embedded(uvicorn.Server):
    """Ends when it is told to, not at its next look at the clock; leaves signals to the test runner."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()

    def capture_signals(self) -> Any:
        return nullcontext()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        tasks = list(self.server_state.tasks)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


__all__ = [
    "ADMIN",
    "COMPLETIONS",
    "DONE",
    "FAST",
    "MODEL",
    "Answered",
    "Band",
    "Closable",
    "Faults",
    "Running",
    "SimSettings",
    "Stream",
    "as_sent",
    "chat",
    "gateway",
    "meanwhile",
    "text_of",
]
