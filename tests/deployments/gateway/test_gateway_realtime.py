"""``/v1/realtime`` over real WebSockets: what is said, who may open one, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import openai
import pytest
from sim_engine.realtime import RealtimeConnection
from support.front_door import door
from support.gateway import FAST, MODEL, Running, SimSettings, gateway
from support.graph import AS_ADMIN, eventually
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from serve_app.settings.paths import ENGINE_PATHS

LIVE = {"paths": list(ENGINE_PATHS)}
TRANSCRIBED = "conversation.item.input_audio_transcription"
APPEND, COMMIT = "input_audio_buffer.append", "input_audio_buffer.commit"


def tone(seconds: float, rate: int = 24_000) -> bytes:
    at = np.arange(int(rate * seconds)) / rate
    return np.rint(10_000 * np.sin(2 * np.pi * 440 * at)).astype("<i2").tobytes()


def audio(seconds: float) -> str:
    return base64.b64encode(tone(seconds)).decode()


@asynccontextmanager
async def live(*settings: SimSettings, **options: Any) -> AsyncIterator[Running]:
    async with gateway(*(settings or (FAST,)), upstream=LIVE, **options) as running:
        yield running


def url(running: Running | str, query: str = f"?model={MODEL}", path: str = "/v1/realtime") -> str:
    base = running if isinstance(running, str) else running.url
    return base.replace("http", "ws", 1) + path + query


@asynccontextmanager
async def opened(
    running: Running | str,
    query: str = f"?model={MODEL}",
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[ClientConnection]:
    """A session whose `session.created` was read."""
    given = AS_ADMIN if headers is None else headers
    async with connect(url(running, query), additional_headers=given, proxy=None, **options) as ws:
        assert (await event(ws))["type"] == "session.created"
        yield ws


async def event(ws: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        received: dict[str, Any] = json.loads(await ws.recv())
    return received


async def until(ws: ClientConnection, kind: str) -> dict[str, Any]:
    while (received := await event(ws))["type"] != kind:
        pass
    return received


async def say(ws: ClientConnection, kind: str, **fields: Any) -> None:
    await ws.send(json.dumps({"type": kind, **fields}))


async def speak(ws: ClientConnection) -> None:
    """Until the member has heard something: it is found for the first audio."""
    await say(ws, APPEND, audio=audio(0.15))
    await until(ws, f"{TRANSCRIBED}.delta")


async def queued(running: Running, count: int) -> None:
    """So many have waited so far."""
    await running.until_traffic(lambda traffic: traffic["queued"] == count)


async def closed(ws: ClientConnection) -> tuple[dict[str, Any], int]:
    """The error that ended it, and the close code."""
    error = await until(ws, "error")
    with pytest.raises(ConnectionClosed) as ended:
        await event(ws)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.reason == error["error"]["code"]
    return error["error"], ended.value.rcvd.code


async def refused(address: str, headers: Mapping[str, str] | None = None, **options: Any) -> tuple[int, Any]:
    with pytest.raises(InvalidStatus) as answer:
        async with connect(address, additional_headers=headers or AS_ADMIN, proxy=None, **options):
            pass
    response = answer.value.response
    return response.status_code, json.loads(response.body or b"{}")


def at_engine(running: Running, number: int = 0) -> RealtimeConnection:
    return running.engines[number].realtime[-1]


# ---- what is said ----


async def test_openais_client_reads_the_text_while_it_speaks_and_the_engine_hears_16_khz() -> None:
    async with live() as running, openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none") as client:
        async with client.realtime.connect(model=MODEL, extra_headers=AS_ADMIN) as session:
            created = await session.recv()
            assert created.type == "session.created"
            await session.session.update(
                session={
                    "type": "transcription",
                    "audio": {
                        "input": {"format": {"type": "audio/pcm", "rate": 24000}, "turn_detection": None}
                    },
                }
            )
            assert (await session.recv()).type == "session.updated"
            await session.input_audio_buffer.append(audio=audio(0.25))
            first = await session.recv()
            assert (first.type, first.delta) == (f"{TRANSCRIBED}.delta", "w1 ")
            await session.input_audio_buffer.append(audio=audio(0.1))
            await session.input_audio_buffer.commit()
            received = []
            while not received or received[-1].type != f"{TRANSCRIBED}.completed":
                received.append(await session.recv())
        assert received[-1].transcript == "w1 w2 w3 "
        assert received[-1].usage.output_tokens == 3
        assert {each.item_id for each in [first, *received]} == {first.item_id}
        pcm = np.frombuffer(at_engine(running).heard[0], "<i2")
        spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
        assert abs(len(pcm) - 5_600) <= 1
        assert abs(np.argmax(spectrum) * 16_000 / len(pcm) - 440) < 3


async def test_utterances_follow_each_other_and_audio_that_comes_early_waits_for_the_last_one() -> None:
    async with live() as running, opened(running) as ws:
        await say(ws, APPEND, audio=audio(0.2))
        await until(ws, f"{TRANSCRIBED}.delta")
        engine = at_engine(running)
        engine.finishes = False
        await say(ws, COMMIT)
        await say(ws, APPEND, audio=audio(0.4))
        assert (await until(ws, "input_audio_buffer.committed"))["previous_item_id"] is None
        await running.until_traffic(lambda counted: counted["realtime_sessions"] == 1)
        assert engine.events.count(COMMIT) == 2  # nothing of the second utterance has come
        engine.finishes = True
        engine.finish()
        assert (await until(ws, f"{TRANSCRIBED}.completed"))["transcript"] == "w1 w2 "
        await say(ws, COMMIT)
        assert (await until(ws, f"{TRANSCRIBED}.completed"))["transcript"] == "w1 w2 w3 w4 "
        assert [len(each) // 2 for each in engine.heard] == [3_200, 6_400]


async def test_the_first_update_may_name_the_model() -> None:
    async with live() as running, opened(running, "?intent=transcription") as ws:
        await say(ws, APPEND, audio=audio(0.1), event_id="mine")
        wrong = (await event(ws))["error"]
        assert (wrong["code"], wrong["event_id"]) == ("model_missing", "mine")
        heard = {"transcription": {"model": MODEL, "language": "en"}}
        await say(ws, "session.update", session={"type": "transcription", "audio": {"input": heard}})
        assert (await event(ws))["type"] == "session.updated"
        await say(ws, APPEND, audio=audio(0.3))
        await say(ws, COMMIT)
        assert (await until(ws, f"{TRANSCRIBED}.completed"))["transcript"] == "w1 w2 w3 "


async def test_vllms_own_client_speaks_its_own_events() -> None:
    async with live(model={"id": MODEL}) as running, opened(running, "") as ws:
        await say(ws, "session.update", model=MODEL)
        await say(ws, COMMIT)
        pcm = tone(0.3, 16_000)
        await say(ws, APPEND, audio=base64.b64encode(pcm).decode())
        await say(ws, COMMIT, final=True)
        done = await until(ws, "transcription.done")
        assert done["text"] == "w1 w2 w3 "
        assert at_engine(running).heard == [pcm]


async def test_wrong_events_are_told_and_the_session_goes_on() -> None:
    async with live() as running, opened(running) as ws:
        for message in ("no json", b"\x00\x01", '{"type": "response.create"}', '{"type": 1}'):
            await ws.send(message)
            assert (await event(ws))["error"]["type"] == "invalid_request_error"
        await say(ws, APPEND, audio=audio(0.1))
        await say(ws, COMMIT)
        assert (await until(ws, f"{TRANSCRIBED}.completed"))["transcript"] == "w1 "


# ---- who may open one ----


async def test_without_a_key_there_is_no_upgrade_and_a_browser_sends_it_as_a_subprotocol() -> None:
    async with live(tenants=["a"]) as running:
        status, body = await refused(url(running), {"x-request-id": "r"})
        assert (status, body["error"]["code"]) == (401, "missing_api_key")
        status, body = await refused(url(running), {"authorization": "Bearer pk-1-wrong"})
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert running.engines[0].realtime == []
        key = f"openai-insecure-api-key.{running.keys['a']}"
        async with opened(running, headers={}, subprotocols=["realtime", key]) as ws:  # type: ignore[list-item]
            assert ws.subprotocol == "realtime"
            await speak(ws)
        async with opened(running, headers=running.headers("a")) as ws:
            await speak(ws)
        told = [at_engine(running).headers, running.engines[0].realtime[0].headers]
        assert not any(running.keys["a"] in str(headers) for headers in told)


async def test_a_page_of_another_origin_is_refused_where_no_key_is_asked_for() -> None:
    async with live() as running:
        status, body = await refused(url(running), {"origin": "https://evil.example"})
        assert (status, body["error"]["code"]) == (403, "origin_not_allowed")
        status, body = await refused(url(running), {"host": "evil.example"})
        assert (status, body["error"]["code"]) == (403, "host_not_allowed")


async def test_a_model_without_the_task_is_refused_with_those_that_have_it() -> None:
    async with live() as running:
        status, body = await refused(url(running, "?model=nobody"))
        assert (status, body["error"]["code"]) == (404, "model_not_found")
    async with gateway(FAST) as running:  # the paths of an upstream do not have it by themselves
        status, body = await refused(url(running))
        assert (status, body["error"]["code"]) == (404, "path_not_offered")
        assert "No model here does" in body["error"]["message"]
        async with opened(running, "") as ws:
            await say(ws, "session.update", model=MODEL)
            error, code = await closed(ws)
        assert (error["code"], code) == ("path_not_offered", 1008)


async def test_other_paths_are_no_websockets_and_this_one_is_nothing_else() -> None:
    async with live() as running:
        status, body = await refused(url(running, path="/v1/responses"))
        assert (status, body["error"]["code"]) == (403, "no_websocket")
        async with running.http.get("/v1/realtime") as answer:
            assert (answer.status, answer.headers["upgrade"]) == (426, "websocket")
            assert (await answer.json())["error"]["code"] == "upgrade_required"
        async with running.http.post("/v1/realtime", json={"model": MODEL}) as answer:
            assert answer.status == 404


@pytest.mark.parametrize("limit", ["max_sessions", "max_sessions_per_tenant"])
async def test_sessions_are_counted_and_each_takes_a_slot_of_its_member(limit: str) -> None:
    async with live(tenants=["a", "b"], realtime={limit: 1}) as running:
        async with opened(running, headers=running.headers("a")) as ws:
            assert (await running.in_flight(), running.engines[0].realtime) == (0, [])
            await speak(ws)
            assert await running.in_flight() == 1
            status, body = await refused(url(running), running.headers("a"))
            assert (status, body["error"]["code"]) == (429, "over_capacity")
            if limit == "max_sessions":
                assert (await refused(url(running), running.headers("b")))[0] == 429
            else:
                async with opened(running, headers=running.headers("b")):
                    pass
        await running.until_idle()
        async with opened(running, headers=running.headers("a")):
            pass


async def test_a_session_keeps_one_member_by_the_names_that_requests_use() -> None:
    async with live(FAST, FAST, FAST) as running:
        for _ in range(4):
            async with opened(running, headers={**AS_ADMIN, "x-session-id": "s7"}) as ws:
                await speak(ws)
        assert sorted(len(engine.realtime) for engine in running.engines) == [0, 0, 4]
        (home,) = (f"e{number}" for number, engine in enumerate(running.engines) if engine.realtime)
        async with running.http.post(
            "/v1/chat/completions",
            json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
            headers={"x-session-id": "s7"},
        ) as answer:
            assert answer.headers["x-served-by"] == home


async def test_a_member_that_refuses_connections_is_passed_over() -> None:
    async with live(FAST, FAST) as running:
        await running.engines[0].kill()
        for _ in range(2):
            async with opened(running) as ws:
                await speak(ws)
        assert len(running.engines[1].realtime) == 2


# ---- how it ends ----


async def test_a_websocket_that_says_nothing_is_told_and_closed() -> None:
    async with live(realtime={"idle_timeout_s": 0.2}) as running:
        for query in ("", f"?model={MODEL}"):
            async with opened(running, query) as ws:
                error, code = await closed(ws)
            assert (error["code"], error["type"], code) == ("idle_timeout", "timeout_error", 1008)
        await running.until_idle()


async def test_a_client_that_says_everything_but_audio_is_silent() -> None:
    async with live(realtime={"idle_timeout_s": 1.0}) as running, opened(running) as ws:

        async def chatter() -> None:
            while True:
                for kind in ("session.update", "x", "input_audio_buffer.clear"):
                    await say(ws, kind)
                await asyncio.sleep(0.05)

        talking = asyncio.create_task(chatter())
        received = await until(ws, "error")
        while received["error"]["code"] != "idle_timeout":
            received = await until(ws, "error")
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        assert running.engines[0].realtime == []


async def test_the_first_audio_waits_for_room_and_a_client_that_leaves_gives_up_its_place() -> None:
    async with gateway(FAST, upstream={**LIVE, "max_requests": 1}) as running:
        async with opened(running) as speaking:
            await speak(speaking)
            async with opened(running) as leaving:
                for _ in range(3):
                    await say(leaving, APPEND, audio=audio(0.1))
                await queued(running, 1)
            async with opened(running) as waiting:
                await say(waiting, APPEND, audio=audio(0.2))
                await say(waiting, COMMIT)
                await queued(running, 2)
                await speaking.close()
                assert (await until(waiting, f"{TRANSCRIBED}.completed"))["transcript"] == "w1 w2 "
        await running.until_idle()
        assert len(running.engines[0].realtime) == 2


async def test_a_session_has_an_end() -> None:
    async with live(realtime={"max_session_s": 0.2}) as running, opened(running) as ws:
        error, code = await closed(ws)
    assert (error["code"], code) == ("session_expired", 1008)


async def test_an_event_beyond_the_bound_ends_the_session() -> None:
    async with live(realtime={"max_event_bytes": 4096}) as running, opened(running) as ws:
        await say(ws, APPEND, audio=audio(0.5))
        error, code = await closed(ws)
    assert (error["code"], code) == ("event_too_large", 1009)


async def test_events_are_counted_in_bytes_and_what_is_far_beyond_the_bound_is_not_read() -> None:
    async with live(realtime={"max_event_bytes": 4096}) as running:
        async with opened(running) as ws:
            await ws.send(json.dumps({"type": COMMIT, "event_id": "é" * 2500}, ensure_ascii=False))
            error, code = await closed(ws)
            assert (error["code"], code) == ("event_too_large", 1009)
        async with opened(running) as ws:
            await say(ws, APPEND, audio=audio(2))
            with pytest.raises(ConnectionClosed) as ended:
                await event(ws)
            assert ended.value.rcvd is not None
            assert ended.value.rcvd.code == 1009
            assert running.engines[0].realtime == []


async def test_compression_is_not_offered_to_clients() -> None:
    async with live() as running, opened(running, compression="deflate") as ws:
        assert ws.request is not None
        assert ws.response is not None
        assert "permessage-deflate" in ws.request.headers["sec-websocket-extensions"]
        assert "sec-websocket-extensions" not in ws.response.headers


async def test_a_flood_of_events_leaves_the_loop_to_others_after_each() -> None:
    async with live() as running, opened(running, max_queue=None) as ws:
        for _ in range(300):
            ws.protocol.send_text(b"{}")
        rounds = 0
        done = asyncio.Event()

        async def counting() -> None:
            nonlocal rounds
            while not done.is_set():
                await asyncio.sleep(0)
                rounds += 1

        other = asyncio.create_task(counting())
        ws.send_data()
        for _ in range(300):
            assert (await event(ws))["error"]["code"] == "invalid_event"
        done.set()
        await other
        assert rounds >= 300


async def test_a_member_that_dies_or_fails_is_told() -> None:
    async with live() as running:
        async with opened(running) as ws:
            await say(ws, APPEND, audio=audio(0.15))
            await until(ws, f"{TRANSCRIBED}.delta")
            at_engine(running).say(type="error", error="out of memory", code="processing_error")
            error, code = await closed(ws)
            assert (error["message"], error["code"], code) == ("out of memory", "processing_error", 1011)
        async with opened(running) as ws:
            await speak(ws)
            await running.engines[0].kill()
            error, code = await closed(ws)
            assert (error["code"], code) == ("upstream_failed", 1011)
        await running.until_idle()


async def test_a_member_that_does_not_finish_is_told() -> None:
    limits = {"between_tokens_timeout_s": 0.8}
    async with live(limits=limits, realtime={"idle_timeout_s": 0.5}) as running, opened(running) as ws:
        await say(ws, APPEND, audio=audio(0.15))
        await until(ws, f"{TRANSCRIBED}.delta")
        at_engine(running).finishes = False
        await say(ws, COMMIT)
        error, code = await closed(ws)
    assert (error["code"], code) == ("upstream_stalled", 1011)


async def test_vllms_own_client_may_wait_for_its_text() -> None:
    async with live(realtime={"idle_timeout_s": 1.0}) as running, opened(running, "") as ws:
        await say(ws, "session.update", model=MODEL)
        await say(ws, COMMIT)
        await say(ws, APPEND, audio=base64.b64encode(tone(0.15, 16_000)).decode())
        await until(ws, "transcription.delta")
        engine = at_engine(running)
        engine.finishes = False
        await say(ws, COMMIT, final=True)
        await asyncio.sleep(1.2)  # longer than a silent client may be
        engine.finishes = True
        engine.finish()
        assert (await until(ws, "transcription.done"))["text"] == "w1 "


async def test_a_client_that_leaves_is_gone_from_its_member_at_once() -> None:
    async with live() as running:
        async with opened(running) as ws:
            await say(ws, APPEND, audio=audio(0.15))
            await until(ws, f"{TRANSCRIBED}.delta")
            ws.transport.abort()

        async def gone() -> bool:
            return not running.engines[0].connections or at_engine(running).is_closed

        assert await eventually(gone, within_s=5)
        await running.until_idle()


async def test_audio_far_ahead_of_speech_is_read_at_its_pace() -> None:
    async with live(realtime={"max_ahead_s": 0.5}) as running, opened(running) as ws:
        for _ in range(3):
            await say(ws, APPEND, audio=audio(0.5))
        await say(ws, COMMIT)
        began = asyncio.get_running_loop().time()
        await until(ws, f"{TRANSCRIBED}.completed")
        assert 0.6 < asyncio.get_running_loop().time() - began < 3


async def test_a_client_that_reads_nothing_stops_its_own_session_only() -> None:
    async with live(realtime={"idle_timeout_s": 1.0}) as running, opened(running, max_queue=1) as ws:
        await speak(ws)
        ws.transport.pause_reading()
        engine = at_engine(running)
        for _ in range(400):
            engine.say(type="transcription.delta", delta="x" * 50_000)
        await running.until_idle()
        async with opened(running) as other:
            await say(other, APPEND, audio=audio(0.15))
            assert (await event(other))["delta"] == "w1 "
        ws.transport.abort()


# ---- what is measured ----


async def test_sessions_are_counted_and_measured_and_no_audio_or_text_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with live() as running:
        async with opened(running) as ws:
            await say(ws, APPEND, audio=audio(0.1))
            await say(ws, COMMIT)
            await until(ws, f"{TRANSCRIBED}.completed")
        await running.until_idle()
        counted = await running.traffic()
        assert (counted["realtime_sessions"], counted["realtime_utterances"]) == (1, 1)
        steps = await running.get("/admin/latency")
        assert {"realtime-first-text", "realtime-last-text"} <= steps.keys()
        assert "upstream" not in steps  # a session's length is no latency
    assert audio(0.1)[:40] not in caplog.text
    assert "w1 " not in caplog.text


async def test_a_name_that_no_model_has_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    name = "no-such-model status=200 " * 10
    async with live() as running:
        async with opened(running, "") as ws:
            heard = {"transcription": {"model": name}}
            await say(ws, "session.update", session={"type": "transcription", "audio": {"input": heard}})
            error, _ = await closed(ws)
            assert error["code"] == "model_not_found"
        await running.until_idle()
        await eventually(lambda: _is_logged(caplog), within_s=5)
    assert "GET /v1/realtime" in caplog.text
    assert "no-such-model" not in caplog.text


async def _is_logged(caplog: pytest.LogCaptureFixture) -> bool:
    return "GET /v1/realtime" in caplog.text


# ---- through HAProxy ----


async def test_haproxy_carries_both_directions_and_the_close() -> None:
    async with live(realtime={"idle_timeout_s": 0.5}) as running, door(running.url) as front:
        async with opened(front.url) as ws:
            await say(ws, APPEND, audio=audio(0.2))
            await say(ws, COMMIT)
            assert (await until(ws, f"{TRANSCRIBED}.completed"))["transcript"] == "w1 w2 "
            error, code = await closed(ws)
            assert (error["code"], code) == ("idle_timeout", 1008)
        status, body = await refused(url(front.url, "?model=nobody"))
        assert (status, body["error"]["code"]) == (404, "model_not_found")
