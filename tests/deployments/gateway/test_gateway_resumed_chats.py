"""A chat with tools and reasoning whose engine is lost: another one is told the tokens so far."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from scripted_member import Meddler, Member, listening
from sim_engine import SimEngine, SimSettings
from support.gateway import MODEL, Answered, Running, chat, serving
from support.graph import ADMIN_TOKEN, AS_ADMIN, CHAT, eventually
from support.handles import Replicas

from deployments.gateway.runtime import GatewayRuntime
from serve_app.fleet import EngineReport, EngineState
from serve_app.openai.continuation import RESUME_PATH, TOLD_FIELD
from serve_app.request.admin_token import AdminToken
from serve_app.settings import parse_args

PLAN = json.dumps(
    [
        {
            "text": "I look at \U0001f600 it.",
            "reasoning": "They want to know.",
            "calls": [
                {"name": "look", "arguments": {"at": 'the "token_ids":[1]}]} sea'}},
                {"name": "look", "arguments": {"at": "the sky"}},
            ],
        }
    ]
)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
SETTINGS = SimSettings(itl_ms=0, plan=PLAN)
LOST, OTHER = "e0", "e1"


@dataclass
class Resuming:
    """An engine that is told the beginning of an answer: it writes these events again, and goes on."""

    http: aiohttp.ClientSession
    engine: str
    told: list[list[list[int]]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        fields = json.loads(await request.read())
        self.paths.append(request.path)
        if request.path == RESUME_PATH:
            self.told.append(fields.pop(TOLD_FIELD))
        async with self.http.post(self.engine + CHAT, json=fields) as answer:
            kind = {"content-type": answer.headers["content-type"]}
            return web.Response(body=await answer.read(), status=answer.status, headers=kind)


def report(name: str, url: str, **fields: Any) -> EngineReport:
    some: dict[str, Any] = {"capacity": 8, "gives_token_ids": False, "resumes_chats": True, **fields}
    return EngineReport(name, MODEL, url, {}, EngineState.READY, **some)


@dataclass
class Pair:
    """A gateway before two replicas; the first one's answers are cut."""

    running: Running
    meddler: Meddler
    other: Resuming

    async def send(self, body: dict[str, Any], passed: int) -> Answered:
        self.meddler.passed = passed
        return await self.running.send(body, CHAT)


@asynccontextmanager
async def pair(**of_other: Any) -> AsyncIterator[Pair]:
    engine = SimEngine(SETTINGS)
    async with AsyncExitStack() as stack:
        url = await engine.start()
        stack.push_async_callback(engine.stop)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        meddler, resuming = Meddler(http, url), Resuming(http, url)
        first, second = Member(meddler), Member(resuming)
        await stack.enter_async_context(listening(first, second))
        model = {"id": MODEL, "source": "owner/model", "engine": {"accelerator": "cpu"}}
        handle: Any = Replicas(report(LOST, first.url), report(OTHER, second.url, priority=1, **of_other))
        settings = parse_args({"models": [model]}, source="test")
        token = AdminToken.of(ADMIN_TOKEN)
        runtime = GatewayRuntime(settings, None, {MODEL: handle}, admin_token=token)
        stack.push_async_callback(runtime.close)
        served = await stack.enter_async_context(serving(runtime.app))
        client = await stack.enter_async_context(aiohttp.ClientSession(served, headers=AS_ADMIN))

        async def is_ready() -> bool:
            async with client.get("/ready") as response:
                return response.status == 200

        assert await eventually(is_ready, within_s=5)
        yield Pair(Running(client, (engine,), served), meddler, resuming)


def body_for(**fields: Any) -> dict[str, Any]:
    some: dict[str, Any] = {"stream": True, "tools": TOOLS, "max_tokens": 200}
    return chat("hi there", **{**some, **fields})


def same(answer: Answered) -> list[dict[str, Any]]:
    """A stream's events but for what engines name by chance; the response has one name in all of them."""
    chunks = answer.chunks
    assert len({(each["id"], each["created"]) for each in chunks}) == 1, chunks
    for each in chunks:
        each |= {"id": "", "created": 0, "system_fingerprint": ""}
        for call in (call for choice in each["choices"] for call in choice["delta"].get("tool_calls", [])):
            assert call.pop("id", None) != ""
    return chunks


async def whole_size(pair: Pair, body: dict[str, Any]) -> int:
    """Bytes of the engine's answer to the gateway."""
    async with pair.other.http.post(
        pair.other.engine + CHAT, json=body | {"return_token_ids": True}
    ) as response:
        return len(await response.read())


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}], ids=["", "usage"])
async def test_a_chat_with_tools_that_is_cut_anywhere_is_the_undisturbed_one(options: dict[str, Any]) -> None:
    """Inside reasoning, text, calls of tools, usage, and in the middle of any event."""
    async with pair() as both:
        body = body_for(**options)
        size = await whole_size(both, {**body, "stream_options": {"include_usage": True}})
        both.meddler.passed = None
        undisturbed = await both.running.send(body, CHAT)
        expected = same(undisturbed)
        assert undisturbed.headers["x-served-by"] == LOST
        deltas = [choice["delta"] for each in expected for choice in each["choices"]]
        assert {"reasoning", "content", "tool_calls"} <= {name for delta in deltas for name in delta}
        assert {} not in deltas[1:-1], "events that say nothing are not passed on"
        for passed in range(200, size, 97):
            answer = await both.send(body, passed)
            assert answer.headers["x-served-by"] == LOST
            assert same(answer) == expected, f"cut after {passed} bytes of {size}"
        traffic = await both.running.traffic()
        assert traffic["cut"] == 0
        assert traffic["continued"] > 10
        assert {RESUME_PATH} <= set(both.other.paths) <= {RESUME_PATH, CHAT}
        await both.running.until_idle()


async def test_the_other_engine_is_told_the_tokens_in_the_pieces_in_which_they_came() -> None:
    async with pair() as both:
        body = body_for()
        await both.send(body, 1500)
        (told,) = both.other.told
        assert told
        assert all(piece and all(isinstance(token, int) for token in piece) for piece in told)


async def test_without_another_engine_that_resumes_the_stream_ends_with_an_error_event() -> None:
    async with pair(resumes_chats=False) as both:
        answer = await both.send(body_for(), 1500)
        assert json.loads(answer.events[-1])["error"]["code"] == "upstream_failed"
        assert both.other.paths == []


@pytest.mark.parametrize(
    "fields", [{"presence_penalty": 0.5}, {"bad_words": ["sea"]}, {"seed": 1, "temperature": 1}], ids=str
)
async def test_what_an_engine_cannot_be_told_ends_with_an_error_event(fields: dict[str, Any]) -> None:
    async with pair() as both:
        answer = await both.send(body_for(**fields), 1500)
        assert json.loads(answer.events[-1])["error"]["code"] == "upstream_failed"
        assert both.other.paths == []


async def test_usage_counts_the_whole_answer_once() -> None:
    async with pair() as both:
        body = body_for(stream_options={"include_usage": True})
        both.meddler.passed = None
        whole = (await both.running.send(body, CHAT)).chunks[-1]["usage"]
        assert (await both.send(body, 2000)).chunks[-1]["usage"] == whole
