"""The path on which an engine is told the beginning of an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support.gateway import serving

from deployments.engine.resume import ResumedChats
from serve_app.openai.continuation import RESUME_PATH, TOLD_FIELD

CHAT = {"model": "m", "messages": [{"role": "user", "content": "h\u00e9"}], "stream": True}
VOCABULARY = 100


class Engine:
    """Remembers what it is told while a request runs."""

    def __init__(self) -> None:
        self.told: Sequence[Sequence[int]] = ()

    @contextmanager
    def telling(self, told: Sequence[Sequence[int]]) -> Iterator[None]:
        self.told = told
        yield
        self.told = ()


@asynccontextmanager
async def listening(engine: Engine) -> AsyncIterator[aiohttp.ClientSession]:
    async def chat(request: Request) -> JSONResponse:
        return JSONResponse({"path": request.url.path, "body": await request.json(), "told": engine.told})

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    async with (
        serving(ResumedChats(app, engine.telling, VOCABULARY)) as url,
        aiohttp.ClientSession(url) as http,
    ):
        yield http


async def test_the_app_gets_the_chat_and_the_engine_the_tokens() -> None:
    told = [[1, 2], [99]]
    async with listening(Engine()) as http, http.post(RESUME_PATH, json=CHAT | {TOLD_FIELD: told}) as answer:
        assert await answer.json() == {"path": "/v1/chat/completions", "body": CHAT, "told": told}


async def test_other_requests_are_told_nothing_whatever_their_bodies_hold() -> None:
    body = CHAT | {TOLD_FIELD: [[1]]}
    async with listening(Engine()) as http, http.post("/v1/chat/completions", json=body) as answer:
        assert (await answer.json())["told"] == []


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        [[]],
        [[1], []],
        [1],
        [[100]],
        [[-1]],
        [[True]],
        [["1"]],
        [[1.5]],
        [[10**30]],
        "x",
        {"a": [1]},
    ],
    ids=str,
)
async def test_what_is_no_token_never_reaches_the_engine(told: Any) -> None:
    async with listening(Engine()) as http, http.post(RESUME_PATH, json=CHAT | {TOLD_FIELD: told}) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == TOLD_FIELD


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", json.dumps(CHAT).encode()])
async def test_a_body_without_tokens_is_refused(body: bytes) -> None:
    async with listening(Engine()) as http, http.post(RESUME_PATH, data=body) as answer:
        assert answer.status == 400
