"""Requests weigh what they ask for, and no tenant takes all places while others want some."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from support.gateway import COMPLETIONS, MODEL, Running, gateway, meanwhile
from support.graph import eventually
from test_gateway_admission import ENDLESS, SHORT, queued, texts

from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.call import SlotRequest
from serve_app.errors import BadRequest
from serve_app.fleet import Dispatch, EngineReport, EngineState, FleetTable
from serve_app.request.timing import Timeline
from serve_app.routing import POLICIES, Router, RoutingRequest
from serve_app.settings import LimitSettings
from serve_app.traffic import Traffic

NOISY, QUIET = "noisy", "quiet"
TENANTS = (NOISY, QUIET)
SIXTEEN = {"max_requests": 16}
TURN = {"role": "user", "content": "hi"}
BATCH = "/v1/chat/completions/batch"
"""A path that is offered only where an operator lists it."""


@asynccontextmanager
async def streams(running: Running, tenant: str, count: int) -> AsyncIterator[AsyncExitStack]:
    """Streams without an end; closing the stack frees their places."""
    async with AsyncExitStack() as stack:
        for number in range(count):
            headers = running.headers(tenant)
            await stack.enter_async_context(running.stream(f"{tenant} {number}", headers, **ENDLESS))
        yield stack


@asynccontextmanager
async def silent_engine() -> AsyncIterator[str]:
    """The URL of a server that is well and never answers."""
    left = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            await left.wait()
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        left.set()
        await runner.cleanup()


# ---- over HTTP ----


async def test_a_tenant_that_has_all_it_may_leaves_room_for_another_at_once() -> None:
    async with gateway(SHORT, upstream=SIXTEEN, tenants=TENANTS) as running:
        assert (await running.post("hi", running.headers(QUIET))).status == 200  # it is about
        async with streams(running, NOISY, 14), AsyncExitStack() as more:
            for number in range(4):
                asked = running.post(f"more {number}", running.headers(NOISY))
                await more.enter_async_context(meanwhile(asked))
                await queued(running, number + 1)
            assert await running.in_flight() == 14
            answers = [await running.post(f"q{n}", running.headers(QUIET), stream=True) for n in range(8)]
            assert all(answer.text for answer in answers)
            assert not any("queue;dur=" in answer.headers["server-timing"] for answer in answers)
            assert await running.in_flight() == 14


async def test_a_tenant_alone_takes_every_place() -> None:
    async with gateway(SHORT, upstream=SIXTEEN, tenants=TENANTS) as running, streams(running, NOISY, 16):
        assert await running.in_flight() == 16


async def test_who_was_not_about_is_the_next_to_be_served_however_long_the_line_is() -> None:
    two = {"max_requests": 2}
    async with gateway(SHORT, upstream=two, tenants=TENANTS) as running, AsyncExitStack() as stack:
        first = await stack.enter_async_context(streams(running, NOISY, 1))
        await stack.enter_async_context(streams(running, NOISY, 1))
        for number in range(6):
            await stack.enter_async_context(meanwhile(_asks_without_end(running, number)))
            await queued(running, number + 1)
        async with meanwhile(running.post("quiet", running.headers(QUIET))) as asked:
            await queued(running, 7)
            await first.aclose()
            async with asyncio.timeout(5):
                assert (await asked).status == 200


async def _asks_without_end(running: Running, number: int) -> None:
    async with running.stream(f"noisy in line {number}", running.headers(NOISY), **ENDLESS) as stream:
        await stream.rest()


async def test_a_line_full_of_one_tenants_requests_refuses_that_tenant_alone() -> None:
    few: dict[str, Any] = {"limits": {"max_queued_requests": 2}, "upstream": {"max_requests": 1}}
    async with gateway(SHORT, tenants=TENANTS, **few) as running, AsyncExitStack() as stack:
        places = await stack.enter_async_context(streams(running, NOISY, 1))
        for number in range(2):
            await stack.enter_async_context(meanwhile(running.post("x", running.headers(NOISY))))
            await queued(running, number + 1)
        assert (await running.post("too many", running.headers(NOISY))).status == 429
        async with meanwhile(running.post("quiet", running.headers(QUIET))) as asked:
            await queued(running, 3)
            await places.aclose()
            assert (await asked).status == 200


@pytest.mark.parametrize(
    ("path", "fields", "weight"),
    [
        ("/v1/chat/completions", {"n": 4}, 4),
        (COMPLETIONS, {"prompt": ["a", "b", "c"]}, 3),
        (COMPLETIONS, {"prompt": [[1, 2], [3]], "n": 2}, 4),
        ("/v1/embeddings", {"input": ["a", "b", "c"]}, 3),
        ("/v1/embeddings", {"input": ["a"] * 50}, 8),
    ],
)
async def test_a_request_takes_as_many_places_as_it_has_sequences(
    path: str, fields: dict[str, Any], weight: int
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
    async with silent_engine() as url:
        other = {"url": f"{url}/v1", "name": "e0", "max_requests": 8}
        async with gateway(others=[other]) as running:

            async def holds() -> bool:
                return await running.in_flight() == weight

            async with meanwhile(running.send(body, path)):
                assert await eventually(holds, within_s=5), await running.in_flight()
            await running.until_idle()


@pytest.mark.parametrize(("fields", "weight"), [({}, 3), ({"n": 2}, 6), ({"messages": [TURN] * 3}, 1)])
async def test_a_batch_of_conversations_takes_a_place_for_each(fields: dict[str, Any], weight: int) -> None:
    body = {"model": MODEL, "messages": [[TURN], [TURN, TURN], [TURN]], **fields}
    async with silent_engine() as url:
        other = {"url": f"{url}/v1", "name": "e0", "max_requests": 8, "paths": [BATCH]}
        async with gateway(others=[other]) as running:

            async def holds() -> bool:
                return await running.in_flight() == weight

            async with meanwhile(running.send(body, BATCH)):
                assert await eventually(holds, within_s=5), await running.in_flight()
            await running.until_idle()
            async with asyncio.timeout(10):
                heavy = await running.send({"model": MODEL, "messages": [[TURN]] * 9}, BATCH)
            assert (heavy.status, heavy.error["param"]) == (400, "messages")


async def test_a_request_that_no_member_could_hold_is_refused_by_name() -> None:
    async with gateway(SHORT, upstream={"max_requests": 8}, tenants=TENANTS) as running:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "n": 8}
        answer = await running.send(body, headers=running.headers(NOISY))
        assert (answer.status, answer.error["param"]) == (400, "n")
        assert "at most 4" in answer.error["message"]
        prompts = {"model": MODEL, "prompt": ["a"] * 9}
        answer = await running.send(prompts, COMPLETIONS, running.headers(NOISY))
        assert (answer.status, answer.error["param"]) == (400, "prompt")
        assert running.requests() == [0]


# ---- by tokens ----


async def test_who_sends_long_prompts_is_served_less_often() -> None:
    """One slot, and both tenants wait all the time: a long prompt costs as much as many short ones."""
    long, limits = "word " * 400, {"max_queued_requests": 100, "max_queue_wait_s": 60.0}
    async with gateway(
        SHORT, upstream={"max_requests": 1}, tenants=("a", "b", "c"), limits=limits
    ) as running:
        asked = [(f"long {long}", "a")] * 4 + [("short", "b")] * 24
        async with asyncio.TaskGroup() as group, streams(running, "c", 1):
            for number, (text, tenant) in enumerate(asked, 1):
                group.create_task(running.post(text, running.headers(tenant)))
                await queued(running, number)
        order = [text.split()[0] for text in texts(running.engines[0])][1:]
    assert len(order) == 28
    second = [at for at, kind in enumerate(order) if kind == "long"][1]
    assert order[:second].count("short") >= 10, order


# ---- at the same moment, without HTTP ----


class Places:
    """An admission in front of members with so many places."""

    def __init__(self, *limits: int, **settings: Any) -> None:
        self.fleet = FleetTable({MODEL: None})
        for number, limit in enumerate(limits):
            report = EngineReport(f"e{number}", MODEL, f"http://e{number}", {}, EngineState.READY)
            report = replace(report, capacity=limit, is_static=True)
            self.fleet.learn(report, time.monotonic())
        router = Router(POLICIES["least_wait"])
        bounds = LimitSettings(max_queue_wait_s=60.0, max_queued_requests=10_000, **settings)
        self.admission = Admission(MODEL, self.fleet, router, bounds, Traffic(), shared=True)

    def call(self, tenant: str, weight: int = 1, priority: int = 5) -> SlotRequest:
        return SlotRequest(
            account=None,
            path="/v1/chat/completions",
            routing=RoutingRequest(1.0),
            priority=priority,
            deadline=time.monotonic() + 60,
            timeline=Timeline(time.time_ns),
            tenant=tenant,
            weight=weight,
        )

    def held(self) -> list[int]:
        return [member.in_flight for member in self.fleet.members(MODEL)]

    async def asks(self, tenant: str, weight: int = 1) -> asyncio.Task[Dispatch]:
        task = asyncio.ensure_future(self.admission.place(self.call(tenant, weight)))
        await asyncio.sleep(0)
        return task


async def test_a_heavy_request_is_passed_only_so_often() -> None:
    places = Places(16)
    running = [(await (await places.asks("light"))) for _ in range(10)]
    heavy = await places.asks("heavy", 8)
    passed = 0
    while (light := await places.asks("light")).done():
        running.append(light.result())
        places.admission.end(running.pop(0), complete=True)
        passed += 1
    assert passed == 16
    for dispatch in running[:2]:
        places.admission.end(dispatch, complete=True)
    assert (await asyncio.wait_for(heavy, 5)).slots == 8
    for dispatch in running[2:]:
        places.admission.end(dispatch, complete=True)
    assert (await asyncio.wait_for(light, 5)).slots == 1


async def test_what_weighs_more_than_any_member_is_refused_and_what_comes_in_parts_is_not() -> None:
    places = Places(8, 4)
    with pytest.raises(BadRequest):
        await places.admission.place(places.call("a", 5))
    assert (await places.admission.place(places.call("a", 4))).slots == 4
    assert places.held() == [4, 0]


@pytest.mark.parametrize("seed", range(12))
async def test_no_place_leaks_no_tenant_starves_and_no_member_holds_too_much(
    seed: int,
) -> None:
    """Tenants of very different appetite come, give up and go; in the end everybody was served."""
    chance = random.Random(seed)
    limits = [chance.choice([4, 8, 16]) for _ in range(chance.choice([1, 2, 3]))]
    places, tenants = Places(*limits), ["noisy", *(f"t{n}" for n in range(chance.randint(1, 4)))]
    heaviest = max(limits) // 2
    waiting: list[asyncio.Task[Dispatch]] = []
    running: list[Dispatch] = []
    given_up = 0

    async def settle() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in [task for task in waiting if task.done()]:
            waiting.remove(task)
            running.append(task.result())
        assert all(held <= limit for held, limit in zip(places.held(), limits, strict=True))
        assert sum(places.held()) == sum(dispatch.slots for dispatch in running)

    for _ in range(400):
        step = chance.random()
        if step < 0.55:
            tenant = "noisy" if chance.random() < 0.7 else chance.choice(tenants)
            weight = chance.randint(1, heaviest) if chance.random() < 0.2 else 1
            waiting.append(await places.asks(tenant, weight))
        elif step < 0.9 and running:
            places.admission.end(running.pop(chance.randrange(len(running))), complete=True)
        elif waiting:
            leaving = waiting.pop(chance.randrange(len(waiting)))
            leaving.cancel()
            given_up += 1
            await asyncio.gather(leaving, return_exceptions=True)
        await settle()
        assert not waiting or running, "somebody waits though everything is free"
    while running:
        places.admission.end(running.pop(0), complete=True)
        await settle()
    assert (waiting, places.admission.waiting, places.held()) == ([], 0, [0] * len(limits))
    assert given_up > 0


@pytest.mark.parametrize("seed", range(6))
async def test_places_are_free_only_for_those_who_may_not_take_them(seed: int) -> None:
    """Work conservation: while requests of one sequence wait, no more is free than is kept for others."""
    chance = random.Random(seed)
    places = Places(16)
    waiting: list[asyncio.Task[Dispatch]] = []
    running: list[Dispatch] = []
    for _ in range(300):
        if chance.random() < 0.6:
            waiting.append(await places.asks(chance.choice(["a", "a", "a", "b", "c"])))
        elif running:
            places.admission.end(running.pop(chance.randrange(len(running))), complete=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in [task for task in waiting if task.done()]:
            waiting.remove(task)
            running.append(task.result())
        assert not waiting or 16 - sum(places.held()) <= 16 * 2 // 3
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def served_of(places: Places, tenants: Sequence[str], rounds: int) -> dict[str, int]:
    """How many requests of each tenant got a place, where each wants all of them and one ends in a round."""
    served = dict.fromkeys(tenants, 0)
    waiting = {tenant: [await places.asks(tenant) for _ in range(100)] for tenant in served}
    running: list[Dispatch] = []
    for _ in range(rounds):
        await asyncio.sleep(0)
        for tenant, tasks in waiting.items():
            for task in [task for task in tasks if task.done()]:
                tasks.remove(task)
                served[tenant] += 1
                running.append(task.result())
        ended = running.pop(0)
        ended.sent_at = time.monotonic()  # a slot costs while it is held; here that is the machine's time
        places.admission.end(ended, complete=True)
    for tasks in waiting.values():
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return served


async def test_tenants_that_all_want_everything_get_equal_shares() -> None:
    served = await served_of(Places(12), ("a", "b", "c"), 150)
    assert max(served.values()) - min(served.values()) <= 12


async def test_a_tenant_s_weight_is_its_part_of_the_shares() -> None:
    """All places are given to the first tenant before the other one asks."""
    served = await served_of(Places(12, tenant_weights={"b": 3.0}), ("a", "b"), 120)
    assert served["b"] == pytest.approx(3 * (served["a"] - 12), abs=12)


async def test_others_in_line_do_not_keep_a_tenant_from_the_race() -> None:
    """A request that has a slot for it goes to the engine and to the store at once."""
    places = Places(16)
    running = [(await (await places.asks("noisy"))) for _ in range(14)]
    running += [(await (await places.asks("quiet"))) for _ in range(2)]
    places.admission.end(running.pop(), complete=True)
    waiting = [await places.asks("noisy") for _ in range(3)]
    assert not any(task.done() for task in waiting)
    assert places.admission.has_room("quiet")
    assert not places.admission.has_room("noisy")
    assert not places.admission.has_room("quiet", 4)
    assert (await (await places.asks("quiet"))).slots == 1
    assert not places.admission.has_room("quiet")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
