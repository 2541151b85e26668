"""Connections that an upstream closes between two requests: the next client must not pay for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Member, cut, listening
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from support.gateway import MODEL, Running, gateway, serving
from support.graph import CHAT, eventually

TURNS = 8
RARELY_LOOKED_AT: dict[str, Any] = {"kind": "vllm", "health_period_s": 60.0}
LOGGING_S = 0.02
"""uvicorn writes a traceback after the answer, and closes then."""

EMBEDDINGS = "/v1/embeddings"
RELAYED = "/detokenize"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    EMBEDDINGS: {"model": MODEL, "input": "hi"},
    RELAYED: {"model": MODEL, "input": "hi"},
}
WHOLE = {"choices": [{"index": 0, "message": {"content": "well"}, "finish_reason": "stop"}]}


async def _answer(request: Request) -> JSONResponse:
    body = await request.json() if request.method == "POST" else {}
    if body.get("input") == "break":
        raise RuntimeError("an application's bug")
    if request.method == "POST":
        await asyncio.sleep(2 * LOGGING_S)
    return JSONResponse(WHOLE)


@asynccontextmanager
async def behind_uvicorn(keep_alive_s: float = 5, **upstream: Any) -> AsyncIterator[Running]:
    """A gateway before an application of Starlette's, which answers a bug with 500 and lets uvicorn close the
    connection, without a word of it in the answer."""
    bare = Starlette(routes=[Route("/{path:path}", _answer, methods=["GET", "POST"])])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await bare(scope, receive, send)
        except RuntimeError:
            await asyncio.sleep(LOGGING_S)
            raise

    async with serving(app, timeout_keep_alive=keep_alive_s) as url:
        settings = {"name": "a", "url": f"{url}/v1", "kind": "vllm", "health_period_s": 60.0, **upstream}
        async with gateway(others=[settings]) as running:
            yield running


@pytest.mark.parametrize("path", BODIES)
async def test_the_client_after_an_engines_500_is_answered(path: str) -> None:
    async with behind_uvicorn() as running:
        for _ in range(TURNS):
            assert (await running.send({"model": MODEL, "input": "break"}, RELAYED)).status == 502
            assert (await running.send(BODIES[path], path)).status == 200


@pytest.mark.parametrize("path", BODIES)
async def test_a_connection_that_was_closed_while_idle_is_replaced(path: str) -> None:
    """The upstream closes it at the very moment at which the next request is sent."""
    known: set[asyncio.Transport] = set()
    closes = 0

    async def once_each(request: web.Request) -> web.StreamResponse:
        nonlocal closes
        assert request.transport is not None
        if request.transport not in known:
            known.add(request.transport)
            return web.json_response(WHOLE)
        closes += 1
        await cut(request)
        raise AssertionError("it is cut")

    member = Member(once_each)
    async with (
        listening(member),
        gateway(others=[member.upstream(**RARELY_LOOKED_AT)]) as running,
    ):
        for _ in range(TURNS):
            assert (await running.send(BODIES[path], path)).status == 200
        assert closes > 0
        assert len(member.seen) == TURNS + closes


@pytest.mark.parametrize("path", BODIES)
async def test_a_request_that_breaks_a_new_connection_is_not_sent_over_a_third(path: str) -> None:
    async def close(request: web.Request) -> web.StreamResponse:
        await cut(request)
        raise AssertionError("it is cut")

    member = Member(close)
    async with (
        listening(member),
        gateway(others=[member.upstream(**RARELY_LOOKED_AT)]) as running,
    ):
        answer = await running.send(BODIES[path], path)
        assert (answer.status, answer.error["code"]) == (502, "upstream_failed")
        assert len(member.seen) <= 2


async def test_an_unused_connection_is_closed_before_the_upstream_would() -> None:
    transports: list[asyncio.Transport] = []

    async def noted(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        transports.append(request.transport)
        return web.json_response(WHOLE)

    async def is_closed() -> bool:
        return transports[-1].is_closing()

    member = Member(noted)
    async with listening(member):
        upstream = member.upstream(kind="vllm", health_period_s=60.0, idle_connection_s=0.05)
        async with gateway(others=[upstream]) as running:
            for _ in range(2):
                assert (await running.post("hi")).status == 200
                assert await eventually(is_closed, within_s=5)
    assert len({id(transport) for transport in transports}) == 2


@pytest.mark.parametrize("path", BODIES)
async def test_no_request_meets_the_closing_of_an_upstream_that_closes_early(path: str) -> None:
    """A real uvicorn whose idle connections live as long as the pause between two requests."""
    pause_s = 0.005
    async with behind_uvicorn(keep_alive_s=pause_s, idle_connection_s=60.0) as running:
        for _ in range(TURNS * 3):
            assert (await running.send(BODIES[path], path)).status == 200
            await asyncio.sleep(pause_s)
