"""What the benchmarks of killed nodes and gateways run on, and how they count."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from typing import Any, cast

import aiohttp
import pytest
from benchmarks.cluster import death_of
from benchmarks.cluster_kills import Asked, HeadDeath, figures_of_deaths, qdrant
from benchmarks.gateways import Killed
from benchmarks.kills import CUT, ERROR_EVENT, WHOLE
from benchmarks.load import Sample
from benchmarks.peers.nodes_app import AsgiClient, unframed
from sim_engine import SimEngine, SimSettings
from sim_engine.connection import Connection, http_chunk
from support.graph import eventually

from deployments.launcher.processes import descendants

CHAT = "POST /v1/chat/completions"


async def answered(stream: bool) -> tuple[dict[str, Any], bytes]:
    """Head and body of the scripted engine's answer, as the private listener gets it."""
    engine = SimEngine(SimSettings(model="m", itl_ms=1.0))
    message = {"role": "user", "content": "Hello."}
    body = json.dumps({"model": "m", "messages": [message], "max_tokens": 5, "stream": stream}).encode()
    client, sent = AsgiClient(), []

    async def send(event: Any) -> None:
        sent.append(event)

    engine.handle(cast("Connection", client), CHAT, {}, body)
    leaving: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    await asyncio.wait_for(client.pass_on(send, leaving), 30)
    engine.scheduler.wheel.stop()
    return sent[0], b"".join(event["body"] for event in sent[1:])


async def test_a_stream_of_the_scripted_engine_reaches_the_listener_without_chunks_of_http() -> None:
    head, body = await answered(stream=True)
    assert head["headers"] == [(b"content-type", b"text/event-stream; charset=utf-8")]
    *events, done = [event.removeprefix(b"data: ") for event in body.split(b"\n\n")[:-1]]
    assert done == b"[DONE]"
    assert [json.loads(event)["object"] for event in events] == ["chat.completion.chunk"] * len(events)


async def test_a_whole_answer_is_passed_on_as_it_is() -> None:
    head, body = await answered(stream=False)
    assert (head["status"], head["headers"]) == (200, [(b"content-type", b"application/json")])
    assert json.loads(body)["usage"]["completion_tokens"] == 5


async def test_a_client_that_leaves_ends_the_answer() -> None:
    client, sent = AsgiClient(), []

    async def send(event: Any) -> None:
        sent.append(event["type"])

    leaving: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    passing = asyncio.ensure_future(client.pass_on(send, leaving))
    client.start_stream()
    leaving.set_result({"type": "http.disconnect"})
    await asyncio.wait_for(passing, 30)
    assert sent[0] == "http.response.start"


def test_chunks_are_taken_apart_and_bare_bytes_stay() -> None:
    assert unframed(http_chunk(b"a\r\nb") + http_chunk(b"c" * 20)) == b"a\r\nb" + b"c" * 20
    assert unframed(b'{"a": 1}') == b'{"a": 1}'
    assert unframed(b"") == b""


def test_streams_beyond_those_of_the_killed_gateway_are_the_other_s() -> None:
    assert Killed(250, Counter({WHOLE: 250, CUT: 250})).others_failed == 0
    assert Killed(250, Counter({WHOLE: 247, CUT: 252, ERROR_EVENT: 1})).others_failed == 3


def test_a_node_s_death_counts_every_stream_that_failed() -> None:
    good = Sample(200, 0.0, 1.0, gaps_s=(0.05, 0.4))
    bad = Sample(200, 0.0, 1.0, error="cut")
    found = death_of([good, good, bad], continued=2, returned_s=9.0)
    assert (found.failed, found.answers, found.continued, found.longest_pause_ms) == (1, 3, 2, 400.0)


def test_a_head_s_death_counts_what_ran_then_and_how_long_nobody_was_answered() -> None:
    times = {(0.0, 12.0): True, (5.0, 11.0): False, (11.0, 15.0): True}
    streams = [Asked(*time, is_whole=is_whole) for time, is_whole in times.items()]
    probes = [Asked(at, at + 0.1, is_whole=at != 12.0) for at in (8.0, 9.0, 12.0, 15.0)]
    figures = figures_of_deaths([HeadDeath(10.0, 16.0, streams, probes)])
    found = {figure.name.removeprefix("head killed: "): figure.values for figure in figures}
    assert found["running streams, all repeats"] == (2.0,)
    assert found["failed running streams, all repeats"] == (1.0,)
    assert found["other failed streams, all repeats"] == (0.0,)
    assert found["failed new requests, all repeats"] == (1.0,)
    assert found["no new request was answered for"] == (pytest.approx(5.0),)  # six, less the usual second


async def test_a_killed_qdrant_comes_back_with_what_it_held() -> None:
    with qdrant() as (url, parent):
        async with aiohttp.ClientSession(url) as http:
            await answered_by(http)
            collection = {"vectors": {"size": 2, "distance": "Cosine"}}
            point = {"id": 1, "vector": [1.0, 0.0], "payload": {"tag": "kept"}}
            index = {"field_name": "tag", "field_schema": "keyword"}
            await put(http, "/collections/c", collection)
            await put(http, "/collections/c/index", index)
            await put(http, "/collections/c/points", {"points": [point]})
            (server,) = descendants(parent)
            os.kill(server, signal.SIGKILL)
            await answered_by(http, before=server, parent=parent)
            async with http.post("/collections/c/points", json={"ids": [1]}) as response:
                assert [each["payload"] for each in (await response.json())["result"]] == [{"tag": "kept"}]
            async with http.get("/collections/c") as response:
                assert "tag" in (await response.json())["result"]["payload_schema"]


async def put(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with http.put(path, json=body) as response:
        assert response.status == 200, await response.text()


async def answered_by(http: aiohttp.ClientSession, before: int = 0, parent: int = 0) -> None:
    """Wait until a process other than ``before`` answers."""

    async def answers() -> bool:
        if before and before in descendants(parent):
            return False
        try:
            async with http.get("/collections/c/exists") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    assert await eventually(answers, within_s=60)
