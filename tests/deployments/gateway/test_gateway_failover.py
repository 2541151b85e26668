"""A member that fails before its first byte: another one answers, and the client notices nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Answer, Member, answers, cut, listening, says, stall
from support.gateway import MODEL, Faults, Running, SimSettings, Stream, gateway, meanwhile

from serve_app.errors import SettingsError
from serve_app.settings import parse_args

QUICK = SimSettings(itl_ms=0, tokens=4)
ONE_AFTER_THE_OTHER = [{"priority": number} for number in range(4)]
"""Engine 0 is asked first, engine 1 next …"""

RARELY_LOOKED_AT = {"health_period_s": 60.0}
"""So that only requests find out that a member is gone."""

FAULTS = {
    "reset": Faults(die_before=True),
    "reset behind the headers": Faults(die_after=0),
    "reset on an old connection": Faults(refuse=True),
    "500": Faults(status=500),
    "502": Faults(status=502),
    "503": Faults(status=503),
    "429": Faults(status=429),
    "no HTTP": Faults(garbage="http"),
    "an error as first event": Faults(error_after=0),
}
HANGS = {"no byte": Faults(hang_before=True), "headers and no byte": Faults(hang_after=0)}


def in_order(*engines: SimSettings, **args: Any) -> Any:
    """Engines that are asked one after the other."""
    upstreams = [each | RARELY_LOOKED_AT for each in ONE_AFTER_THE_OTHER[: len(engines)]]
    return gateway(*engines, upstreams=upstreams, **args)


# ---- another member answers ----


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
async def test_a_member_that_fails_before_its_first_byte_is_replaced(faults: Faults, stream: bool) -> None:
    async with in_order(QUICK, QUICK) as running:
        expected = (await running.post("hi", stream=stream)).text
        ill, well = running.engines
        await ill.set_faults(faults)
        answer = await running.post("hi", stream=stream)
        assert answer.text == expected
        assert answer.headers["x-served-by"] == "e1"
        assert well.stats().requests == 1
        # The first request, this one, and once more where this one's connection was not new.
        assert ill.stats().requests <= 3, "it was asked again over a new connection"
        traffic = await running.traffic()
        assert (traffic["failovers"], traffic["continued"], traffic["requests"]) == (1, 0, 2)
        await running.until_idle()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_member_that_nobody_listens_at_is_replaced_and_left_alone(stream: bool) -> None:
    async with in_order(QUICK, QUICK) as running:
        await running.engines[0].kill()
        for _ in range(3):
            assert (await running.post("hi", stream=stream)).headers["x-served-by"] == "e1"
        assert (await running.traffic())["failovers"] == 1
        assert not (await running.member(0))["can_serve"]


@pytest.mark.parametrize("faults", HANGS.values(), ids=HANGS)
async def test_a_member_that_hangs_is_replaced_and_told_to_stop(faults: Faults) -> None:
    async with in_order(QUICK, QUICK, limits={"first_token_timeout_s": 0.4}) as running:
        hanging = running.engines[0]
        await hanging.set_faults(faults)
        answer = await running.post("hi", stream=True)
        assert (bool(answer.text), answer.headers["x-served-by"]) == (True, "e1")
        async with asyncio.timeout(5):
            await hanging.until(lambda stats: stats.aborted == 1 and stats.running == 0)
        assert running.requests() == [1, 1]


async def test_a_whole_answer_may_take_longer_than_a_first_token() -> None:
    """It begins when it is done: only the request's own deadline bounds it."""
    async with in_order(QUICK, QUICK, limits={"first_token_timeout_s": 0.1}) as running:
        slow = running.engines[0]
        await slow.set_faults(Faults(first_byte_ms=300))
        assert (await running.post("hi")).headers["x-served-by"] == "e0"
        await slow.set_faults(Faults(hang_before=True))
        answer = await running.post("hi", {"x-request-timeout-ms": "300"})
        assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
        async with asyncio.timeout(5):
            await slow.until(lambda stats: stats.aborted == 1)
        assert running.requests() == [2, 0]


async def test_every_attempt_has_an_id_of_its_own() -> None:
    """vLLM names its own request after it: two with one name must not meet there."""
    settings = SimSettings(keep_bodies=2, tokens=2, itl_ms=0)
    async with in_order(settings, settings) as running:
        await running.engines[0].set_faults(Faults(status=500))
        await running.post("hi", {"x-request-id": "mine"})
        seen = [request for engine in running.engines for request in engine.stats().seen]
        ids = [request["headers"]["x-request-id"] for request in seen]
        assert len(set(ids)) == 2
        assert all(each.startswith("mine-") for each in ids)
        assert seen[0]["body"] == seen[1]["body"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_whole_answer_that_breaks_off_is_asked_for_again(stream: bool) -> None:
    """Nothing of it was sent to the client: it does not matter how much of it had come."""

    async def half(request: web.Request) -> web.StreamResponse:
        response = await begin_json(request)
        await response.write(b'{"choices": [')
        await cut(request)
        return response

    member = Member(says(then=cut) if stream else half)
    async with listening(member):
        others = [member.upstream(**RARELY_LOOKED_AT)]
        async with gateway(QUICK, upstreams=[{"priority": 1}], others=others) as running:
            answer = await running.post("hi", stream=stream)
            assert answer.status == 200, answer.body
            assert answer.text
            assert (len(member.seen), running.requests()) == (1, [1])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_answer_without_a_byte_is_asked_for_again(stream: bool) -> None:
    """Its status is 200, its end is in order; but nothing was said."""

    async def nothing(_: web.Request) -> web.Response:
        return web.Response(content_type="application/json")

    member = Member(says() if stream else nothing)
    async with listening(member):
        others = [member.upstream(**RARELY_LOOKED_AT)]
        async with gateway(QUICK, upstreams=[{"priority": 1}], others=others) as running:
            answer = await running.post("hi", stream=stream)
            assert answer.text
            assert (len(member.seen), running.requests()) == (1, [1])


async def begin_json(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json"})
    response.content_length = 1000
    await response.prepare(request)
    return response


# ---- how often ----


@pytest.mark.parametrize("max_attempts", [1, 2, 3, 9])
async def test_every_member_is_asked_once_and_no_more_than_max_attempts_are(max_attempts: int) -> None:
    async with in_order(QUICK, QUICK, QUICK, QUICK, gateway={"max_attempts": max_attempts}) as running:
        for engine in running.engines:
            await engine.set_faults(Faults(status=503))
        answer = await running.post("hi", stream=True)
        assert (answer.status, answer.error["type"]) == (502, "upstream_error")
        asked = min(max_attempts, 4)
        assert running.requests() == [1] * asked + [0] * (4 - asked)
        traffic = await running.traffic()
        assert (traffic["failovers"], traffic["requests"]) == (asked - 1, 1)
        await running.until_idle()


async def test_a_member_that_nobody_listens_at_is_no_attempt() -> None:
    """Nothing was sent to it: a rack that is gone must not use up what is meant for engines that fail."""
    async with in_order(QUICK, QUICK, QUICK, gateway={"max_attempts": 2}) as running:
        for engine in running.engines[:2]:
            await engine.kill()
        answer = await running.post("hi", stream=True)
        assert (answer.status, answer.headers["x-served-by"]) == (200, "e2")


async def test_the_last_members_failure_is_the_answer_when_all_fail() -> None:
    async with in_order(QUICK, QUICK, limits={"first_token_timeout_s": 0.1}) as running:
        await running.engines[0].set_faults(Faults(status=500))
        await running.engines[1].set_faults(Faults(hang_before=True))
        answer = await running.post("hi", stream=True)
        assert (answer.status, answer.error["code"]) == (504, "first_token_timeout")


async def test_members_that_are_all_busy_say_when_to_come_again() -> None:
    async with in_order(QUICK, QUICK) as running:
        for engine in running.engines:
            await engine.set_faults(Faults(status=429))
        answer = await running.post("hi")
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.error["message"]
        assert running.requests() == [1, 1]


@pytest.mark.parametrize("status", [400, 404, 413, 422])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_an_engine_refuses_is_passed_on_at_once(status: int, stream: bool) -> None:
    """The request is wrong, and would be anywhere."""
    async with in_order(QUICK, QUICK) as running:
        await running.engines[0].set_faults(Faults(status=status))
        answer = await running.post("hi", stream=stream)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert answer.error["message"] == "A simulated failure."
        assert running.requests() == [1, 0]
        assert (await running.traffic())["failovers"] == 0


async def test_an_error_event_with_a_clients_fault_is_passed_on_as_its_status() -> None:
    error = json.dumps({"error": {"message": "no", "type": "x", "param": "body.top_p", "code": 400}})
    member = Member(says(error.encode().replace(b'{"error": ', b'{"error":'), b"[DONE]"))
    async with listening(member):
        others = [member.upstream(**RARELY_LOOKED_AT)]
        async with gateway(QUICK, upstreams=[{"priority": 1}], others=others) as running:
            answer = await running.post("hi", stream=True)
            assert (answer.status, answer.error["param"]) == (400, "top_p")
            assert running.requests() == [0]


# ---- who does not want it ----


@pytest.mark.parametrize("value", ["off", "OFF", " off "])
async def test_a_request_may_refuse_failover(value: str) -> None:
    async with in_order(QUICK, QUICK) as running:
        await running.engines[0].set_faults(Faults(status=500))
        answer = await running.post("hi", {"x-failover": value}, stream=True)
        assert answer.status == 502
        assert running.requests() == [1, 0]


async def test_a_request_may_ask_for_failover_where_the_settings_do_not() -> None:
    async with in_order(QUICK, QUICK, gateway={"failover": False}) as running:
        await running.engines[0].set_faults(Faults(status=500))
        assert (await running.post("hi")).status == 502
        assert running.requests() == [1, 0]
        assert (await running.post("hi", {"x-failover": "on"})).status == 200
        assert running.requests() == [2, 1]


@pytest.mark.parametrize("value", ["maybe", "", "1", "on, off"])
async def test_nonsense_about_failover_is_refused(value: str) -> None:
    async with gateway(QUICK) as running:
        answer = await running.post("hi", {"x-failover": value})
        assert (answer.status, answer.error["param"]) == (400, "x-failover")
        assert "'on' or 'off'" in answer.error["message"]
        assert running.requests() == [0]


# ---- requests that are not read here ----


RELAYED = ["/tokenize", "/v1/embeddings"]
BROKEN: dict[str, Answer] = {
    "500": answers(500, {"error": {"message": "no"}}),
    "503": answers(503, {"error": {"message": "no"}}),
    "429": answers(429, {"error": {"message": "no"}}),
    "reset": says(then=cut),
    "no byte": says(then=stall),
}


@pytest.mark.parametrize("path", RELAYED)
@pytest.mark.parametrize("broken", BROKEN)
async def test_what_may_have_had_an_effect_is_never_sent_twice(path: str, broken: str) -> None:
    first, second = Member(BROKEN[broken]), Member(answers(200, {}))
    async with listening(first, second):
        others = [
            first.upstream(name="a", paths=RELAYED),
            second.upstream(name="b", priority=1, paths=RELAYED),
        ]
        async with gateway(others=others) as running:
            headers = {"x-request-timeout-ms": "300"} if broken == "no byte" else {}
            answer = await running.send({"model": MODEL, "prompt": "x", "input": "x"}, path, headers)
            expected = {"429": 429, "no byte": 504}.get(broken, 502)
            assert (answer.status, bool(answer.error["message"])) == (expected, True)
            assert (len(first.seen), len(second.seen)) == (1, 0)


@pytest.mark.parametrize("path", RELAYED)
async def test_what_reached_nobody_is_sent_to_another(path: str) -> None:
    well = Member(answers(200, {"count": 3}))
    async with listening(well):
        others = [well.upstream(priority=1, paths=RELAYED, **RARELY_LOOKED_AT)]
        async with gateway(QUICK, upstream=RARELY_LOOKED_AT, others=others) as running:
            await running.engines[0].kill()
            for headers in ({}, {"x-failover": "off"}):
                answer = await running.send({"model": MODEL, "input": "x"}, path, headers)
                assert (answer.status, answer.json) == (200, {"count": 3})
                assert answer.headers["x-served-by"] == "member"
            assert len(well.seen) == 2


# ---- what it does to others ----


async def test_who_waits_for_another_member_does_not_hold_up_those_that_the_free_one_can_take() -> None:
    slow = SimSettings(itl_ms=10, tokens=400)
    upstreams = [{"priority": 0, "max_requests": 1}, {"priority": 1, "max_requests": 1}]
    upstreams = [each | RARELY_LOOKED_AT for each in upstreams]
    async with gateway(slow, slow, upstreams=upstreams) as running, holding_both(running) as first:
        first.leave()
        await running.engines[0].until(lambda stats: stats.running == 0)
        await running.engines[0].set_faults(Faults(status=500, times=1))
        async with meanwhile(running.post("one that fails at e0")):
            await running.until_traffic(lambda traffic: traffic["queued"] == 1)
            async with asyncio.timeout(3), running.stream("one that e0 can take") as stream:
                assert stream.headers["x-served-by"] == "e0"


@asynccontextmanager
async def holding_both(running: Running) -> AsyncIterator[Stream]:
    """Two streams, one at each engine; gives the first one."""
    async with running.stream("a") as first, running.stream("b") as second:
        assert [first.headers["x-served-by"], second.headers["x-served-by"]] == ["e0", "e1"]
        yield first


async def test_a_client_that_leaves_during_a_failover_leaves_nothing_behind() -> None:
    async with in_order(QUICK, QUICK) as running:
        await running.engines[0].set_faults(Faults(status=500))
        await running.engines[1].set_faults(Faults(hang_before=True))
        request = asyncio.create_task(running.post("hi", stream=True))
        await running.engines[1].until(lambda stats: stats.requests == 1)
        request.cancel()
        async with asyncio.timeout(5):
            await running.engines[1].until(lambda stats: stats.aborted == 1)
        await running.until_idle()


async def test_a_stream_that_is_no_json_ends_with_an_error_event() -> None:
    async with in_order(QUICK, QUICK) as running:
        await running.engines[0].set_faults(Faults(garbage="json"))
        answer = await running.post("hi", stream=True)
        if running.requests() == [1, 0]:
            assert answer.cut["type"] == "upstream_error"
        else:
            assert answer.text


def test_max_attempts_of_zero_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"gateway\.max_attempts = 0"):
        parse_args({"models": [], "gateway": {"max_attempts": 0}}, source="f")
