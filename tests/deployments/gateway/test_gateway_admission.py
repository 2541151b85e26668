"""The way of requests to members: at once where there is room, else in line, else refused."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from sim_engine import SimEngine
from support.gateway import FAST, MODEL, Answered, Faults, Running, SimSettings, chat, gateway, meanwhile

from deployments.gateway.app import Answering
from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.call import SlotRequest
from deployments.gateway.request.exchange import Exchange
from serve_app.errors import OverCapacity
from serve_app.fleet import EngineReport, EngineState, FleetTable
from serve_app.request.timing import Timeline
from serve_app.routing import POLICIES, Router, RoutingRequest
from serve_app.settings import LimitSettings
from serve_app.traffic import Traffic

SHORT = SimSettings(itl_ms=5, tokens=3, keep_bodies=32)
ONE = {"max_requests": 1}
ENDLESS = {"ignore_eos": True}


@asynccontextmanager
async def occupied(running: Running, streams: int = 1) -> AsyncIterator[AsyncExitStack]:
    """Streams without an end take the places; closing the stack frees them."""
    async with AsyncExitStack() as stack:
        for number in range(streams):
            await stack.enter_async_context(running.stream(f"in the way {number}", **ENDLESS))
        yield stack


async def queued(running: Running, count: int) -> None:
    """So many requests have waited, or wait."""
    await running.until_traffic(lambda traffic: traffic["queued"] == count)


def texts(engine: SimEngine) -> list[str]:
    """What the engine was asked, in order."""
    return [json.loads(seen["body"])["messages"][0]["content"] for seen in engine.stats().seen]


class Peak:
    """The most requests that an engine had at once."""

    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine
        self.highest = 0

    async def watch(self) -> None:
        while True:
            stats = self._engine.stats()
            self.highest = max(self.highest, stats.running + stats.waiting)
            await self._engine.scheduler.change()


# ---- the bound ----


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_member_never_has_more_requests_than_it_may(stream: bool) -> None:
    async with gateway(SHORT, SHORT, upstream={"max_requests": 3}) as running:
        peaks = [Peak(engine) for engine in running.engines]
        async with meanwhile(peaks[0].watch()), meanwhile(peaks[1].watch()):
            answers = await asyncio.gather(*(running.post(f"t{n}", stream=stream) for n in range(30)))
        assert all(answer.text for answer in answers)
        assert [peak.highest for peak in peaks] == [3, 3]
        assert (await running.traffic())["queued"] > 12
        await running.until_idle()


@pytest.mark.parametrize("fault", [Faults(die_after=1), Faults(status=500), Faults(status=422)])
async def test_a_place_is_free_again_after_a_failure(fault: Faults) -> None:
    async with gateway(SHORT, upstream=ONE) as running:
        for _ in range(3):
            await running.engines[0].set_faults(fault)
            headers = {"x-failover": "off"}
            await running.post("hi", headers, stream=True)
            await running.engines[0].set_faults(Faults())
            assert (await running.post("hi")).status == 200


async def test_whoever_waits_goes_when_a_place_is_free() -> None:
    async with gateway(SHORT, upstream=ONE) as running, occupied(running) as places:
        async with meanwhile(running.post("next", stream=True)) as waiting:
            await queued(running, 1)
            assert running.requests() == [1]
            assert await running.in_flight() == 1
            await places.aclose()
            answer = await waiting
        assert answer.text
        assert "queue;dur=" in answer.headers["server-timing"]


# ---- the order ----


async def test_the_more_urgent_go_first_and_the_older_among_equals() -> None:
    asked = ["5 a", "9 b", "0 c", "5 d", "0 e", "- f", "4 g", "9 h"]
    async with gateway(SHORT, upstream=ONE) as running, occupied(running) as places:
        async with AsyncExitStack() as tasks:
            waiting = []
            for number, text in enumerate(asked):
                priority = {} if text[0] == "-" else {"x-priority": text[0]}
                work = meanwhile(running.post(text, priority))
                waiting.append(await tasks.enter_async_context(work))
                await queued(running, number + 1)
            await places.aclose()
            assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
        order = ["0 c", "0 e", "4 g", "5 a", "5 d", "- f", "9 b", "9 h"]
        assert texts(running.engines[0]) == ["in the way 0", *order]


async def test_the_order_holds_for_relayed_paths_too() -> None:
    async with gateway(SHORT, upstream=ONE) as running, occupied(running):
        body = {"model": MODEL, "input": "x"}
        urgent = {"x-priority": "0", "x-request-timeout-ms": "300"}
        assert (await running.send(body, "/v1/embeddings", urgent)).status in (429, 504)
        nonsense = await running.send(body, "/v1/embeddings", {"x-priority": "high"})
        assert (nonsense.status, nonsense.error["param"]) == (400, "x-priority")


@pytest.mark.parametrize("value", ["high", "-1", "10", "", "1.5", "٣"])
async def test_nonsense_about_priority_is_refused(value: str) -> None:
    async with gateway(FAST) as running:
        answer = await running.post("hi", {"x-priority": value})
        assert (answer.status, answer.error["param"]) == (400, "x-priority")
        assert running.requests() == [0]


# ---- refusals ----


def is_refusal(answer: Answered) -> bool:
    error = answer.error
    assert (answer.status, error["type"], error["code"]) == (429, "rate_limit_error", "over_capacity")
    return int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("bound", [0, 1, 2])
async def test_who_has_too_many_ahead_is_refused_at_once(bound: int) -> None:
    limits = {"max_queued_requests": bound}
    async with gateway(SHORT, upstream=ONE, limits=limits) as running, AsyncExitStack() as stack:
        await stack.enter_async_context(occupied(running))
        for number in range(bound):
            await stack.enter_async_context(meanwhile(running.post(f"waits {number}")))
            await queued(running, number + 1)
        for stream in (False, True):
            async with asyncio.timeout(2):
                assert is_refusal(await running.post("too many", stream=stream))
        traffic = await running.traffic()
        assert (traffic["refused"], traffic["queued"]) == (2, bound)
        assert running.requests() == [1]


async def test_who_has_nobody_ahead_of_its_priority_is_not_refused() -> None:
    async with gateway(SHORT, upstream=ONE, limits={"max_queued_requests": 1}) as running:
        async with occupied(running) as places, meanwhile(running.post("normal")) as normal:
            await queued(running, 1)
            async with meanwhile(running.post("urgent", {"x-priority": "0"})) as urgent:
                await queued(running, 2)
                assert is_refusal(await running.post("no hurry", {"x-priority": "9"}))
                await places.aclose()
                assert (await urgent).status == (await normal).status == 200
        assert texts(running.engines[0]) == ["in the way 0", "urgent", "normal"]


async def test_who_could_not_be_served_in_time_is_refused_at_once() -> None:
    """One answer took a third of a second: a request that may wait less need not begin to."""
    slow = SimSettings(itl_ms=40, tokens=8)
    async with gateway(slow, upstream=ONE, limits={"max_queue_wait_s": 30.0}) as running:
        assert (await running.post("to know how long it takes", stream=True)).text
        async with occupied(running):
            hurried = {"x-request-timeout-ms": "250"}
            assert is_refusal(await running.post("in a hurry", hurried))
            assert (await running.traffic())["queued"] == 0
            async with meanwhile(running.post("patient")):
                await queued(running, 1)


async def test_a_wait_that_lasts_too_long_ends_in_a_refusal() -> None:
    async with gateway(SHORT, upstream=ONE, limits={"max_queue_wait_s": 0.2}) as running:
        async with occupied(running) as places:
            assert is_refusal(await running.post("hi"))
            traffic = await running.traffic()
            assert (traffic["queued"], traffic["refused"]) == (1, 1)
            await places.aclose()
        assert (await running.post("hi")).status == 200
        assert texts(running.engines[0]) == ["in the way 0", "hi"]


async def test_a_deadline_that_passes_in_line_is_the_requests_own() -> None:
    async with gateway(SHORT, upstream=ONE) as running, occupied(running) as places:
        started = time.monotonic()
        answer = await running.post("in a hurry", {"x-request-timeout-ms": "300"})
        assert time.monotonic() - started < 3
        assert (answer.status, answer.error["code"]) in ((504, "deadline_exceeded"), (429, "over_capacity"))
        await places.aclose()
        await running.until_idle()
        assert texts(running.engines[0]) == ["in the way 0"]


async def test_a_deadline_that_passes_in_line_is_always_the_same_error() -> None:
    """Two clocks run out together: which one is first must not be what the client is told."""
    async with gateway(SHORT, upstream=ONE) as running, occupied(running):
        hurried = {"x-request-timeout-ms": "150"}
        answers = [await running.post("in a hurry", hurried) for _ in range(4)]
        answers += await asyncio.gather(*(running.post("in a hurry", hurried) for _ in range(8)))
        assert {answer.status for answer in answers} == {504}


# ---- who leaves ----


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_who_leaves_the_line_takes_no_place(stream: bool) -> None:
    async with gateway(SHORT, upstream=ONE) as running, occupied(running) as places:
        async with meanwhile(running.post("leaves", stream=stream)) as leaving:
            await queued(running, 1)
            async with meanwhile(running.post("stays", stream=stream)) as staying:
                await queued(running, 2)
                leaving.cancel()
                await asyncio.wait([leaving])
                await places.aclose()
                assert (await staying).text
        await running.until_idle()
        assert texts(running.engines[0]) == ["in the way 0", "stays"]


async def test_a_client_that_closes_a_running_and_a_waiting_request_at_once_leaves_no_trace() -> None:
    async with gateway(SHORT, upstream=ONE) as running:
        for number in range(1, 6):
            async with aiohttp.ClientSession(running.url) as other:
                stream = await other.post("/v1/chat/completions", json=chat("runs", stream=True, **ENDLESS))
                async with meanwhile(_asked(other, chat("waits"))) as waiting:
                    await queued(running, number)
                    waiting.cancel()
                    stream.close()
            await running.until_idle()
        assert (await running.post("next")).status == 200


async def _asked(http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
    async with http.post("/v1/chat/completions", json=body) as response:
        await response.read()


# ---- members that come and go ----


async def test_without_a_member_a_request_waits_for_one_and_then_says_so() -> None:
    async with gateway(SHORT, limits={"max_queue_wait_s": 0.3}) as running:
        await running.engines[0].kill()
        await running.until_serving(0, False)
        answer = await running.post("hi", stream=True)
        assert (answer.status, answer.error["code"]) == (503, "no_replica")
        assert answer.headers["retry-after"] == "1"
        assert (await running.traffic())["refused"] == 0


async def test_a_member_that_comes_serves_those_who_wait() -> None:
    async with gateway(SHORT) as running:
        port = int((await running.member())["url"].rpartition(":")[2])
        await running.engines[0].kill()
        await running.until_serving(0, False)
        later = SimEngine(SHORT)
        async with AsyncExitStack() as stack:
            asked = [
                await stack.enter_async_context(meanwhile(running.post(f"t{n}", stream=True)))
                for n in range(3)
            ]
            await queued(running, 3)
            await later.start(port=port)
            stack.push_async_callback(later.stop)
            assert all(answer.text for answer in await asyncio.gather(*asked))
        assert (await running.traffic())["refused"] == 0


async def test_a_member_that_is_left_alone_for_a_moment_serves_those_who_wait_when_it_is_back() -> None:
    """It refused one connection, then its health check went well."""
    async with gateway(SHORT, limits={"max_queue_wait_s": 5.0}) as running:
        port = int((await running.member())["url"].rpartition(":")[2])
        await running.engines[0].kill()
        first = await running.post("finds nobody")
        assert first.status in (502, 503)
        later = SimEngine(SHORT)
        await later.start(port=port)
        try:
            assert (await running.post("finds it again")).text
        finally:
            await later.stop()


async def test_a_member_that_is_left_alone_for_a_moment_is_asked_when_the_moment_is_over() -> None:
    """Also where no other request ends, and its health is not looked at meanwhile."""
    upstreams = [{"priority": 0, "health_period_s": 60.0}, {"priority": 1, "health_period_s": 60.0}]
    async with gateway(SHORT, SHORT, upstreams=upstreams, limits={"max_queue_wait_s": 8.0}) as running:
        failing, gone = running.engines
        port = int((await running.member(1))["url"].rpartition(":")[2])
        await gone.kill()
        await failing.set_faults(Faults(status=500))
        assert (await running.post("finds nobody")).status == 502
        later = SimEngine(SHORT)
        await later.start(port=port)
        try:
            async with asyncio.timeout(4):
                assert (await running.post("finds it again")).text
        finally:
            await later.stop()


# ---- the gateway's own bound ----


async def test_beyond_max_concurrent_requests_all_is_refused_but_what_needs_no_engine() -> None:
    limits = {"max_concurrent_requests": 2}
    async with gateway(SHORT, limits=limits) as running, occupied(running, 2):
        assert is_refusal(await running.post("one more"))
        for path in ("/health", "/ready", "/admin/traffic", "/v1/models", f"/v1/models/{MODEL}"):
            async with running.http.get(path) as response:
                assert response.status == 200, path


def asked_for_models(tenant: str) -> Exchange:
    async def nothing(*_: Any) -> Any:
        raise AssertionError("it is not answered here")

    exchange = Exchange(
        {"type": "http", "method": "GET", "path": "/v1/models", "headers": []}, nothing, nothing
    )
    exchange.facts.tenant = tenant
    return exchange


def test_lists_of_models_have_a_bound_of_their_own_and_each_tenant_a_part_of_it() -> None:
    lists = Answering(3, 2, ("all lists", "of one tenant"))

    def enter(tenant: str) -> Exchange:
        exchange = asked_for_models(tenant)
        try:
            lists.expect(exchange, reads_body=False)
            assert exchange.tenant_known is not None
            exchange.tenant_known(exchange)
        except OverCapacity:
            lists.end(exchange)
            raise
        return exchange

    entered = [enter("a"), enter("a")]
    with pytest.raises(OverCapacity, match="of one tenant"):
        enter("a")
    entered.append(enter("b"))
    with pytest.raises(OverCapacity, match="all lists"):
        enter("c")
    for exchange in entered:
        lists.end(exchange)
    lists.end(enter("c"))


# ---- at the same moment, without HTTP ----


class Place:
    """An admission in front of one member with one place."""

    def __init__(self, **limits: Any) -> None:
        self.fleet = FleetTable({MODEL: 1})
        report = EngineReport("e0", MODEL, "http://e0", {}, EngineState.READY, is_static=True)
        self.fleet.learn(report, time.monotonic())
        router = Router(POLICIES["least_wait"])
        self.admission = Admission(MODEL, self.fleet, router, LimitSettings(**limits), Traffic())

    def call(self, timeout_s: float = 60.0, priority: int = 5) -> SlotRequest:
        return SlotRequest(
            account=None,
            path="/v1/chat/completions",
            routing=RoutingRequest(1.0),
            priority=priority,
            deadline=time.monotonic() + timeout_s,
            timeline=Timeline(time.time_ns),
        )

    async def waits(self, **about: Any) -> asyncio.Task[Any]:
        """A task that is in line."""
        before = self.admission.waiting
        task = asyncio.ensure_future(self.admission.place(self.call(**about)))
        await asyncio.sleep(0)  # it runs until it waits
        assert self.admission.waiting == before + 1
        return task


async def test_a_place_that_is_free_in_the_moment_when_its_taker_leaves_goes_to_the_next() -> None:
    place = Place()
    running = await place.admission.place(place.call())
    leaving, staying = await place.waits(), await place.waits()
    leaving.cancel()
    place.admission.end(running, complete=True)  # before the one that leaves has run once more
    with pytest.raises(asyncio.CancelledError):
        await leaving
    async with asyncio.timeout(2):
        place.admission.end(await staying, complete=True)
    assert (place.fleet.in_flight(), place.admission.waiting) == (0, 0)


async def test_a_place_that_was_given_to_one_who_leaves_in_that_moment_goes_to_the_next() -> None:
    place = Place()
    running = await place.admission.place(place.call())
    leaving, staying = await place.waits(), await place.waits()
    place.admission.end(running, complete=True)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    async with asyncio.timeout(2):
        place.admission.end(await staying, complete=True)
    assert (place.fleet.in_flight(), place.admission.waiting) == (0, 0)


async def test_no_place_is_lost_or_given_twice_while_clients_come_give_up_and_leave() -> None:
    place, chance = Place(max_queue_wait_s=0.004), random.Random(1)
    held = 0

    async def client() -> None:
        nonlocal held
        dispatch = await place.admission.place(place.call(priority=chance.randrange(10)))
        held += 1
        assert held == place.fleet.in_flight() == 1
        try:
            await asyncio.sleep(chance.choice([0, 0, 0.001]))
        finally:
            held -= 1
            place.admission.end(dispatch, complete=True)

    clients = []
    for _ in range(400):
        clients.append(asyncio.ensure_future(client()))
        if chance.random() < 0.3:
            chance.choice(clients).cancel()
        if chance.random() < 0.3:
            await asyncio.sleep(chance.choice([0, 0.001]))
    ends = await asyncio.gather(*clients, return_exceptions=True)
    assert {type(end) for end in ends} == {type(None), OverCapacity, asyncio.CancelledError}
    assert (place.fleet.in_flight(), place.admission.waiting) == (0, 0)
