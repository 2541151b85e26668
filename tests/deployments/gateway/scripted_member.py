"""An upstream that answers as a test says, and one that meddles with what an engine answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

EVENTS = {"content-type": "text/event-stream; charset=utf-8"}
BIG = 1 << 24


@dataclass(frozen=True)
class Seen:
    """One request that is no ``GET``."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> Any:
        return json.loads(self.body)


@dataclass
class Member:
    """Answers what asks how it is with 200, everything else with ``answer``. ``asked`` are the paths of the
    former, ``seen`` are the latter."""

    answer: Answer
    seen: list[Seen] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    url: str = ""
    context: int | None = None
    """Tokens of the model that it says it has."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            self.asked.add(request.path)
            models = [] if self.context is None else [{"id": "sim", "max_model_len": self.context}]
            return web.json_response({"object": "list", "data": models})
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.path, headers, body))
        return await self.answer(request)

    def upstream(self, **settings: Any) -> dict[str, Any]:
        return {"name": "member", "url": f"{self.url}/v1", "kind": "openai", **settings}


@asynccontextmanager
async def listening(*members: Member) -> AsyncIterator[None]:
    runners = []
    try:
        for member in members:
            app = web.Application(client_max_size=BIG)
            app.router.add_route("*", "/{path:.*}", member.handle)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            runners.append(runner)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            member.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


async def begin(request: web.Request) -> web.StreamResponse:
    """A stream's headers."""
    response = web.StreamResponse(headers=EVENTS)
    await response.prepare(request)
    return response


async def cut(request: web.Request) -> None:
    """Break the connection. Does not return."""
    assert request.transport is not None
    request.transport.abort()
    await stall()


async def stall(_: web.Request | None = None) -> None:
    """Nothing more, until the other side closes the connection."""
    await asyncio.Event().wait()


def says(*events: bytes, then: Callable[[web.Request], Awaitable[None]] | None = None) -> Answer:
    """A stream of these events; after them it ends, or what ``then`` does happens."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        for event in events:
            await response.write(b"data: " + event + b"\n\n")
        if then is not None:
            await then(request)
        return response

    return answer


def answers(status: int, value: Any, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return web.json_response(value, status=status, headers=named)

    return answer


def chunk(text: str, **choice: Any) -> bytes:
    """A chat's event as OpenAI has it, without what is vLLM's own."""
    whole = {"index": 0, "delta": {"content": text}, "finish_reason": None, **choice}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "sim"}
    return json.dumps(head | {"choices": [whole]}, separators=(",", ":")).encode()


@dataclass
class Meddler:
    """Passes requests on to an engine, and ``passed`` bytes of each answer's body back; then does what
    ``then`` says: ``cut``, ``end`` or ``stall``. ``None``: the whole answer and its end."""

    http: aiohttp.ClientSession
    engine: str
    passed: int | None = None
    then: str = "cut"

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"content-type": "application/json"}
        async with self.http.post(self.engine + request.path, data=body, headers=headers) as answer:
            whole = await answer.read()
            if self.passed is None:
                return web.Response(body=whole, status=answer.status, headers=_type(answer))
            response = web.StreamResponse(headers=_type(answer))
            if self.then != "end" and not answer.content_type.startswith("text/event-stream"):
                response.content_length = len(whole)
            await response.prepare(request)
            if self.passed:
                await response.write(whole[: self.passed])
        if self.then == "cut":
            await asyncio.sleep(0)
            await cut(request)
        if self.then == "stall":
            await stall()
        return response


def _type(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {"content-type": answer.headers["content-type"]}
