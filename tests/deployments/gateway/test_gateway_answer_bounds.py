"""An upstream whose event or answer has no end: it is given up, and nothing is put together for ever."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from scripted_member import EVENTS, Answer, Member, answers, chunk, listening, says
from support.gateway import DONE, MODEL, SimSettings, gateway
from support.graph import CHAT

QUICK = SimSettings(itl_ms=0, tokens=4)
BOUND = 100_000
LIMITS = {"max_event_bytes": BOUND, "max_answer_bytes": BOUND}
PIECE = b"x" * 65_536
BUFFERED = 64 << 20
"""More than the sockets on the way hold."""

RELAYED = ["/v1/embeddings", "/tokenize"]
RARELY_LOOKED_AT = {"health_period_s": 60.0}


class Endless:
    """Writes until its reader has left."""

    def __init__(self, begin: bytes, *, stream: bool, status: int = 200) -> None:
        self.begin = begin
        self.headers = EVENTS if stream else {"content-type": "application/json"}
        self.status = status
        self.written = 0
        self.ended = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=self.headers, status=self.status)
        try:
            await response.prepare(request)
            await response.write(self.begin)
            while self.written < BUFFERED:
                await response.write(PIECE)
                self.written += len(PIECE)
        finally:
            self.ended.set()
        return response

    async def was_closed(self) -> bool:
        async with asyncio.timeout(5):
            await self.ended.wait()
        return self.written < BUFFERED


@pytest.mark.parametrize("kind", ["openai", "vllm"])
@pytest.mark.parametrize("begin", [b"data: ", b"data: " + chunk("a") + b"\n\ndata: "], ids=["first", "later"])
async def test_an_event_without_an_end_ends_the_stream_with_an_error_event(kind: str, begin: bytes) -> None:
    endless = Endless(begin, stream=True)
    member = Member(endless)
    async with listening(member), gateway(others=[member.upstream(kind=kind)], limits=LIMITS) as running:
        answer = await running.post("hi", stream=True)
        assert answer.status == 200
        assert json.loads(answer.events[-1])["error"]["code"] == "event_too_large"
        assert "limits.max_event_bytes" in json.loads(answer.events[-1])["error"]["message"]
        assert len(answer.body) < BOUND + (1 << 20)
        assert await endless.was_closed()
        assert (await running.traffic())["cut"] == 1
        await running.until_idle()


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_without_an_end_is_the_engines_failure(status: int) -> None:
    endless = Endless(b'{"choices": "', stream=False, status=status)
    member = Member(endless)
    async with listening(member), gateway(others=[member.upstream()], limits=LIMITS) as running:
        answer = await running.post("hi")
        assert (answer.status, answer.error["code"]) == (502, "answer_too_large")
        assert "limits.max_answer_bytes" in answer.error["message"]
        assert await endless.was_closed()
        await running.until_idle()


@pytest.mark.parametrize("path", RELAYED)
async def test_so_is_one_that_is_only_relayed(path: str) -> None:
    endless = Endless(b'{"data": "', stream=False)
    member = Member(endless)
    async with (
        listening(member),
        gateway(others=[member.upstream(kind="vllm")], limits=LIMITS) as running,
    ):
        answer = await running.send({"model": MODEL, "prompt": "x", "input": "x"}, path)
        assert (answer.status, answer.error["code"]) == (502, "answer_too_large")
        assert await endless.was_closed()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_another_member_answers_in_its_place(stream: bool) -> None:
    member = Member(Endless(b"data: " if stream else b"{", stream=stream))
    async with listening(member):
        others = [member.upstream(kind="vllm", **RARELY_LOOKED_AT)]
        async with gateway(QUICK, upstreams=[{"priority": 1}], others=others, limits=LIMITS) as running:
            answer = await running.post("hi", stream=stream)
            assert answer.text
            assert (len(member.seen), running.requests()) == (1, [1])


async def test_health_without_an_end_is_no_health() -> None:
    member = Member(says(DONE))
    endless = Endless(b"{", stream=False)
    member.handle = endless.__call__  # type: ignore[method-assign]
    async with listening(member):
        others = [member.upstream(name="e0", health_period_s=60.0)]
        async with gateway(others=others, limits=LIMITS, ready=False) as running:
            assert await endless.was_closed()
            await running.until_serving(0, False)


BIG = "y" * (BOUND - 1000)
WITHIN: dict[str, tuple[Answer, dict[str, Any]]] = {
    "stream": (says(*[chunk(BIG)] * 5, DONE), {"stream": True}),
    "whole": (answers(200, {"choices": [{"index": 0, "message": {"content": BIG}}]}), {}),
}


@pytest.mark.parametrize("name", WITHIN)
async def test_events_and_answers_within_their_bounds_pass(name: str) -> None:
    """However long a stream of them is."""
    answer, fields = WITHIN[name]
    member = Member(answer)
    async with listening(member), gateway(others=[member.upstream()], limits=LIMITS) as running:
        got = await running.send(
            {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}, CHAT
        )
        assert set(got.text) == {"y"}
        assert len(got.text) in (len(BIG), 5 * len(BIG))
