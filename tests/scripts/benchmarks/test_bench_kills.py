"""What the benchmark of kills reckons from what it saw."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from benchmarks.kills import (
    ALONE,
    CUT,
    ERROR_EVENT,
    PARTS,
    WHOLE,
    Kill,
    Part,
    ending,
    figures_of_kills,
    outage_s,
)
from benchmarks.load import chat_request

REQUEST = chat_request("m", "hi", 3)
CHUNK = b'data: {"choices":[]}\n\n'
ERROR = b"data: " + json.dumps({"error": {"message": "gone"}}, separators=(",", ":")).encode() + b"\n\n"
ENDS = {"/done": [CHUNK, b"data: [DONE]\n\n"], "/told": [CHUNK, ERROR], "/cut": [CHUNK], "/empty": []}


@pytest.mark.parametrize(
    ("answered", "until", "expected"),
    [
        ([1.0, 1.1, 1.2, 1.3, 1.4], 1.5, 0.0),
        ([1.0, 1.1, 1.2, 4.2, 4.3], 4.4, 2.9),
        ([1.0, 1.1, 1.2, 2.2, 5.2], 5.3, 2.9),  # the longest of two
        ([4.2, 1.0, 1.2, 1.1, 4.3], 4.4, 2.9),  # in whatever order they were answered
        ([1.0, 1.1], 9.1, 7.9),  # no request was answered again
    ],
)
def test_an_outage_is_the_longest_time_without_an_answer(
    answered: list[float], until: float, expected: float
) -> None:
    assert outage_s(answered, 1.25 if 1.2 in answered else 1.15, until) == pytest.approx(expected)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in ENDS[request.path]:
            await response.write(event)
        if request.path in ("/cut", "/empty"):
            assert request.transport is not None
            request.transport.abort()
        return response

    app = web.Application()
    app.router.add_post("/{path}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "how"), [("/done", WHOLE), ("/told", ERROR_EVENT), ("/cut", CUT), ("/empty", CUT)]
)
async def test_how_a_stream_ended(url: str, path: str, how: str) -> None:
    async with aiohttp.ClientSession(url) as http:
        assert await ending(http, type(REQUEST)(path, REQUEST.body)) == how


@pytest.mark.parametrize("part", [*PARTS, *ALONE], ids=lambda part: part.name)
def test_only_a_part_that_streams_pass_through_may_cut_them(part: Part) -> None:
    endings = [Counter({WHOLE: 64}), Counter({WHOLE: 63, CUT: 1}), Counter({WHOLE: 64})]
    kills = [Kill(part, 0.1, 0, each) for each in endings]
    missed = [figure.name for figure in figures_of_kills(kills) if figure.met is False]
    kept = part.name in ("controller", "cache")
    assert missed == ([f"{part.name} killed: streams cut, all repeats together"] if kept else [])


def test_a_kill_that_cuts_no_stream_meets_its_target() -> None:
    for part in (*PARTS, *ALONE):
        figures = figures_of_kills([Kill(part, 0.1, 0, Counter({WHOLE: 64}))])
        assert not [figure.name for figure in figures if figure.met is False]
