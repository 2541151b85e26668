"""A model without a replica is ready: who asks first waits for a start, and the autoscaler hears of all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError
from sim_engine import SimEngine
from support.gateway import FAST, MODEL, Running, gateway, meanwhile, serving
from support.graph import ADMIN_TOKEN, AS_ADMIN, eventually

from deployments.gateway.placement.external import external_upstreams
from deployments.gateway.runtime import GatewayRuntime
from serve_app.autoscaling import GatewayLoad
from serve_app.fleet import EngineReport, EngineState
from serve_app.request.admin_token import AdminToken
from serve_app.settings import parse_args

ENGINE = DeploymentID(f"Engine:{MODEL}", "app")
SOON = {"x-request-timeout-ms": "400"}


class Result:
    """Of one replica, in the shapes that a handle gives it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    async def get_async(self) -> Any:
        return self._value


class Answers:
    """Of every replica. Serve raises where there is none."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    async def _fetch_replica_results_async(self) -> list[Result]:
        if not self._values:
            raise DeploymentUnavailableError(ENGINE)
        return [Result(value) for value in self._values]

    async def results_async(self) -> list[Any]:
        return [await each.get_async() for each in await self._fetch_replica_results_async()]


class Fleet:
    """A deployment that is scaled to zero, as its handle shows it: a call waits until somebody starts a
    replica. ``calls`` counts those, ``polls`` the broadcasts, ``told`` is what the replica heard."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.is_up = asyncio.Event()
        self.breaks = False
        self.calls = 0
        self.polls = 0
        self.told: list[GatewayLoad] = []

    def broadcast(self, method: str, *given: Any) -> Answers:
        self.polls += 1
        if not self.is_up.is_set():
            return Answers([])
        if method == "record_traffic":
            self.told.extend(given)
            return Answers([None])
        return Answers([self._report()])

    @property
    def describe(self) -> Fleet:
        return self

    async def remote(self) -> EngineReport:
        self.calls += 1
        if self.breaks:
            raise DeploymentUnavailableError(ENGINE)
        await self.is_up.wait()
        return self._report()

    def _report(self) -> EngineReport:
        return EngineReport("r0", MODEL, self._url, {}, EngineState.READY, capacity=4)


@asynccontextmanager
async def sleeping(
    upstreams: tuple[dict[str, Any], ...] = (), fixed_replicas: int | None = None, **args: Any
) -> AsyncIterator[tuple[Running, Fleet]]:
    """A gateway in front of a model that has no replica yet."""
    replicas = {"min": 0, "max": 2, "ttft_objective_s": 5.0}
    model = {
        "id": MODEL,
        "source": "a/b",
        "engine": {"accelerator": "cpu"},
        "replicas": fixed_replicas or replicas,
    }
    settings = parse_args(
        {"models": [model | {"upstreams": list(upstreams)}], "gateway": {"fleet_poll_s": 0.02}, **args},
        source="test",
    )
    engine = SimEngine(FAST)
    fleet: Any = Fleet(await engine.start())
    runtime = GatewayRuntime(
        settings,
        None,
        {MODEL: fleet},
        external=external_upstreams(settings, os.environ),
        admin_token=AdminToken.of(ADMIN_TOKEN),
    )
    try:
        async with serving(runtime.app) as url, aiohttp.ClientSession(url, headers=AS_ADMIN) as http:
            yield Running(http, (engine,), url), fleet
    finally:
        await runtime.close()
        await engine.stop()


async def status_of(running: Running, path: str) -> int:
    async with running.http.get(path) as response:
        return response.status


async def asked(fleet: Fleet) -> None:
    async def so() -> bool:
        return fleet.calls > 0

    assert await eventually(so, within_s=5)


async def test_a_model_that_is_scaled_to_zero_is_ready_and_listed() -> None:
    async with sleeping() as (running, fleet):
        assert await status_of(running, "/ready") == 200
        assert (await running.get("/ready"))["ready_replicas"] == {MODEL: 0}
        assert await status_of(running, f"/v1/models/{MODEL}") == 200
        assert fleet.calls == 0  # looking wakes no engine


async def test_who_asks_first_waits_for_the_start_and_is_served() -> None:
    limits = {"max_queue_wait_s": 0.05}  # for room; a start takes what it takes
    async with sleeping(limits=limits) as (running, fleet):
        async with meanwhile(running.post("hi", stream=True)) as first:
            await asked(fleet)
            async with meanwhile(running.post("hi there")) as second:
                await running.until_traffic(lambda traffic: traffic["queued"] == 2)
                fleet.is_up.set()
                assert (await first).text
                assert (await second).text
        assert fleet.calls == 1
        assert running.requests() == [2]


async def test_a_deadline_that_ends_before_the_start_is_answered_with_why() -> None:
    async with sleeping() as (running, fleet):
        answer = await running.post("hi", SOON)
        assert (answer.status, answer.error["code"]) == (503, "model_starting")
        assert f"'{MODEL}' had no replica: one is starting" in answer.error["message"]
        assert "retry-after" in answer.headers
        fleet.is_up.set()  # the start goes on for those who come back
        assert (await running.post("hi")).text
        assert fleet.calls == 1


async def test_a_line_before_a_start_is_as_long_as_any() -> None:
    limits = {"max_queued_requests": 1}
    async with sleeping(limits=limits) as (running, fleet), meanwhile(running.post("first")) as first:
        await asked(fleet)
        assert (await running.post("second")).status == 429
        fleet.is_up.set()
        assert (await first).text


async def test_a_start_that_failed_is_asked_for_again_while_somebody_waits() -> None:
    async with sleeping() as (running, fleet):
        fleet.breaks = True
        async with meanwhile(running.post("hi")) as waiting:
            await asked(fleet)
            fleet.breaks = False
            fleet.is_up.set()
            assert (await waiting).text


async def test_a_fleet_that_ended_is_woken_again() -> None:
    async with sleeping() as (running, fleet):
        fleet.is_up.set()
        await running.post("hi")
        fleet.is_up.clear()

        async def empty() -> bool:
            return (await running.get("/ready"))["ready_replicas"] == {MODEL: 0}

        assert await eventually(empty, within_s=5)
        async with meanwhile(running.post("hi again")) as again:
            calls = fleet.calls
            await running.until_traffic(lambda traffic: traffic["queued"] >= 1)
            fleet.is_up.set()
            assert (await again).text
        assert fleet.calls >= calls


async def test_an_upstream_answers_meanwhile_and_the_replica_is_started_all_the_same() -> None:
    async with gateway() as other:
        helper = {"name": "helper", "url": f"{other.url}/v1", "priority": 1, "health_period_s": 0.05}
        async with sleeping(upstreams=(helper,)) as (running, fleet):

            async def helps() -> bool:
                return (await running.get("/ready"))["ready_replicas"] == {MODEL: 1}

            assert await eventually(helps, within_s=5)
            answer = await running.post("hi")
            assert (answer.status, answer.headers["x-served-by"]) == (200, "helper")
            await asked(fleet)


async def test_the_autoscaler_hears_of_arrivals_and_of_the_line() -> None:
    async with sleeping() as (running, fleet):
        fleet.is_up.set()
        for number in range(3):
            await running.post(f"question {number}", stream=True)

        async def heard() -> bool:
            return any(load.arrived == 3 for load in fleet.told)

        assert await eventually(heard, within_s=5), fleet.told
        newest = fleet.told[-1]
        assert newest.arrived_tokens > 3
        assert (newest.queued, newest.late_first_tokens) == (0, 0)
        # The one that had to wait for the start is not among them.
        assert newest.first_tokens in (2, 3)
        assert [load.number for load in fleet.told] == sorted({load.number for load in fleet.told})


@pytest.mark.parametrize("replicas", [1, {"max": 2}])
async def test_a_model_that_keeps_a_replica_is_not_ready_without_one(replicas: Any) -> None:
    model = {"id": MODEL, "source": "a/b", "engine": {"accelerator": "cpu"}, "replicas": replicas}
    settings = parse_args({"models": [model]}, source="test")
    fleet: Any = Fleet("http://nobody")
    runtime = GatewayRuntime(settings, None, {MODEL: fleet}, admin_token=AdminToken.of(ADMIN_TOKEN))
    try:
        async with (
            serving(runtime.app) as url,
            aiohttp.ClientSession(url, headers=AS_ADMIN) as http,
            http.get("/ready") as found,
        ):
            assert found.status == 503
    finally:
        await runtime.close()
    assert fleet.calls == 0


async def test_an_engine_that_is_not_there_yet_is_logged_once_and_not_at_every_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warnings() -> list[str]:
        return [each.message for each in caplog.records if "can be asked for its load" in each.message]

    async def polled_five_times(fleet: Fleet) -> None:
        until = fleet.polls + 5

        async def so() -> bool:
            return fleet.polls >= until

        assert await eventually(so, within_s=5)

    async with sleeping(fixed_replicas=1) as (_, fleet):
        await polled_five_times(fleet)
        assert len(warnings()) == 1
        fleet.is_up.set()
        await polled_five_times(fleet)
        fleet.is_up.clear()
        await polled_five_times(fleet)
        assert len(warnings()) == 2
