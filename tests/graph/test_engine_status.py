"""What the gateway says of engines: those that serve, those that cannot start, those without room."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from ray import serve
from support.failing_engine import REASON, FailingEngine
from support.graph import ADMIN_TOKEN, AS_ADMIN, Graph

from deployments.graph import build_graph, engine_options
from deployments.platform.scaling_record import record_change
from serve_app.autoscaling.changes import ScalingChange
from serve_app.request.admin_token import TOKEN_VARIABLE
from serve_app.settings import ModelSettings, parse_args

MODEL = {"id": "m", "source": "scripted", "drain_timeout_s": 0.0}
WITHIN_S = 60.0

Deploy = Callable[..., Graph]


async def get(http: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
    async with http.get(url, headers=AS_ADMIN) as response:
        is_json = response.content_type == "application/json"
        return response.status, await response.json() if is_json else {}


async def until(http: aiohttp.ClientSession, url: str, done: Callable[[int, Any], bool]) -> tuple[int, Any]:
    """The first answer that is what is waited for."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            status, body = await get(http, url)
            if done(status, body):
                return status, body
            await asyncio.sleep(0.2)


@pytest.fixture
def other_engine(serve_url: str) -> Iterator[Callable[..., Graph]]:
    """Deploys a graph whose engine is another class, without waiting for it; deleted at the end."""
    names: list[str] = []

    def start(name: str, cls: type[Any], num_cpus: float = 0.1, **options: Any) -> Graph:
        def engine(model: ModelSettings) -> serve.Application:
            given = engine_options(model) | {"ray_actor_options": {"num_cpus": num_cpus}} | options
            return serve.deployment(cls, name=f"Engine:{model.id}", **given).bind(model)

        engine_settings = {"accelerator": "cpu", "num_cpus": num_cpus}
        settings = parse_args({"models": [MODEL | {"engine": engine_settings}]}, source=name)
        names.append(name)
        graph = build_graph(settings, {**os.environ, TOKEN_VARIABLE: ADMIN_TOKEN}, engine=engine)
        target = serve.RunTarget(graph, name=name, route_prefix=f"/{name}")
        serve.run_many([target], wait_for_applications_running=False)
        return Graph(f"{serve_url}/{name}", name, {})

    yield start
    for name in names:
        serve.delete(name)


async def test_an_engine_that_serves_is_healthy(http: aiohttp.ClientSession, plain: Graph) -> None:
    status, body = await get(http, f"{plain.url}/admin/engines")
    assert status == 200
    assert (body["scripted"]["status"], body["scripted"]["message"]) == ("healthy", "")
    assert [replica["state"] for replica in body["scripted"]["replicas"]] == ["ready", "ready"]
    assert (await get(http, f"{plain.url}/ready"))[1]["status"] == "ready"


async def test_why_a_fleet_was_scaled_is_shown_the_newest_change_first(
    http: aiohttp.ClientSession, plain: Graph
) -> None:
    """The autoscaling policy writes it in Serve's controller, another process than the gateway's."""
    assert (await get(http, f"{plain.url}/admin/engines"))[1]["scripted"]["scaling"] == []
    for change in (ScalingChange(10.0, 1, 3, 3, "backlog"), ScalingChange(20.0, 3, 3, 1, "surplus", sleep=2)):
        await asyncio.to_thread(record_change, plain.app, "Engine:scripted", change)
    _, engines = await until(
        http, f"{plain.url}/admin/engines", lambda status, body: len(body["scripted"]["scaling"]) == 2
    )
    assert engines["scripted"]["scaling"] == [
        {"at": 20.0, "from": 3, "to": 3, "needed": 1, "reason": "surplus", "sleep": 2},
        {"at": 10.0, "from": 1, "to": 3, "needed": 3, "reason": "backlog"},
    ]


async def test_an_engine_that_cannot_start_is_named_with_its_reason_in_one_line(
    http: aiohttp.ClientSession, other_engine: Callable[..., Graph]
) -> None:
    graph = other_engine("failing", FailingEngine, max_constructor_retry_count=1)
    status, body = await until(
        http, f"{graph.url}/ready", lambda status, body: body.get("status") == "failed"
    )
    assert (status, body["failed"], body["ready_replicas"]) == (503, ["m"], {"m": 0})
    _, engines = await get(http, f"{graph.url}/admin/engines")
    message = f"model 'm': {REASON}"
    assert engines == {"m": {"status": "deploy_failed", "message": message, "scaling": [], "replicas": []}}


async def test_replicas_without_room_name_the_setting_and_what_is_missing(
    http: aiohttp.ClientSession, other_engine: Callable[..., Graph]
) -> None:
    graph = other_engine("crowded", FailingEngine, num_cpus=100.0)
    _, engines = await until(
        http, f"{graph.url}/admin/engines", lambda status, body: (body.get("m") or {}).get("message")
    )
    assert engines["m"]["status"] == "updating"
    expected = "models[0].replicas = 1: each takes 101 CPU, and of the cluster's 8 CPU"
    assert engines["m"]["message"].startswith(expected)
    status, body = await get(http, f"{graph.url}/ready")
    assert (status, body["status"]) == (503, "starting")
