"""A new config for a running application replaces what it changes, and cuts no stream."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema
from support.graph import AS_ADMIN, CHAT, Graph, chat, eventually
from support.scripted_engine import chat_events
from support.upgrade_app import IMPORT_PATH

WORDS = " ".join(f"w{number}" for number in range(2000))  # about five seconds
WHOLE = b"".join(chat_events("scripted", "say", WORDS)) + b"data: [DONE]\n\n"
STREAMS = 7
"""One less than the engine runs at once: a slow machine's streams take longer than a request may wait."""

ENGINE = {"accelerator": "cpu"}
SCRIPTED = {"id": "scripted", "source": "scripted", "engine": ENGINE, "drain_timeout_s": 30.0}
SECOND = {**SCRIPTED, "id": "second"}


def args(*models: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"models": list(models) or [SCRIPTED], **sections}


def replicas(app: str, deployment: str) -> set[str]:
    """The running replicas."""
    details = _client().get_serve_details()["applications"][app]["deployments"][deployment]
    return {each["replica_id"] for each in details["replicas"] if each["state"] == "RUNNING"}


async def stream(http: aiohttp.ClientSession, url: str) -> bytes:
    async with http.post(url + CHAT, json=chat(f"say {WORDS}", stream=True)) as response:
        assert response.status == 200
        return await response.read()


async def ask_until(http: aiohttp.ClientSession, url: str, done: asyncio.Event) -> list[str]:
    """What went wrong with one request after another."""
    failures = []
    while not done.is_set():
        async with http.post(url + CHAT, json=chat("say here")) as response:
            if response.status != 200:
                failures.append(f"{response.status} {await response.text()}")
        await asyncio.sleep(0.05)
    return failures


@pytest.mark.parametrize(
    ("name", "after", "engines_stay"),
    [
        ("engine-roll", args({**SCRIPTED, "revision": "next"}), False),
        ("model-added", args({**SCRIPTED, "aliases": ["other"], "cost_per_device_hour": 1.0}, SECOND), True),
    ],
)
async def test_an_upgrade_cuts_no_stream_and_keeps_what_did_not_change(
    http: aiohttp.ClientSession, deploy_ready: Any, name: str, after: dict[str, Any], engines_stay: bool
) -> None:
    graph: Graph = await asyncio.to_thread(deploy_ready, f"upgrade-{name}", args())
    engines, gateways = replicas(graph.app, "Engine:scripted"), replicas(graph.app, "Gateway")
    streams = [asyncio.create_task(stream(http, graph.url)) for _ in range(STREAMS)]

    async def all_run() -> bool:
        async with http.get(f"{graph.url}/admin/fleet", headers=AS_ADMIN) as response:
            return sum(member["in_flight"] for member in (await response.json())["scripted"]) == STREAMS

    assert await eventually(all_run, within_s=10)
    done = asyncio.Event()
    asking = asyncio.create_task(ask_until(http, graph.url, done))
    await asyncio.to_thread(deploy_ready, graph.app, after)
    assert all(body == WHOLE for body in await asyncio.gather(*streams))
    done.set()
    assert await asking == []
    assert (replicas(graph.app, "Engine:scripted") == engines) is engines_stay
    assert not replicas(graph.app, "Gateway") & gateways


async def test_a_model_that_is_removed_finishes_its_answers(
    http: aiohttp.ClientSession, deploy_ready: Any
) -> None:
    graph: Graph = await asyncio.to_thread(deploy_ready, "upgrade-removed", args(SECOND, SCRIPTED))
    running = asyncio.create_task(stream(http, graph.url))

    async def it_runs() -> bool:
        async with http.get(f"{graph.url}/admin/fleet", headers=AS_ADMIN) as response:
            return sum(member["in_flight"] for member in (await response.json())["scripted"]) == 1

    assert await eventually(it_runs, within_s=10)
    await asyncio.to_thread(deploy_ready, graph.app, args(SECOND))
    assert await running == WHOLE


async def test_a_config_file_that_is_deployed_again_replaces_what_it_changes(
    http: aiohttp.ClientSession, serve_url: str, tmp_path: Path
) -> None:
    """As `promptly apply` and KubeRay's operator do it: Serve's controller builds the application."""
    name, client = "upgrade-file", _client()
    responses = {"responses": {"path": str(tmp_path)}}

    async def deployed(**sections: Any) -> None:
        await asyncio.to_thread(
            client.deploy_apps, config(name, args(**sections, **responses)), _blocking=True
        )

    await deployed()
    engines, gateways = replicas(name, "Engine:scripted"), replicas(name, "Gateway")
    owners = replicas(name, "Responses")
    url = f"{serve_url}/{name}"

    async def answers() -> bool:
        async with http.post(url + CHAT, json=chat("say here")) as response:
            return response.status == 200

    assert await eventually(answers, within_s=30)
    running = asyncio.create_task(stream(http, url))
    await deployed(limits={"max_body_bytes": 90_000})
    assert await running == WHOLE
    assert replicas(name, "Engine:scripted") == engines
    assert replicas(name, "Responses") == owners
    assert not replicas(name, "Gateway") & gateways


def config(name: str, settings: dict[str, Any]) -> ServeDeploySchema:
    """Beside it, the applications of a config file that run are removed: there are none."""
    application = {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": IMPORT_PATH,
        "args": settings,
    }
    return ServeDeploySchema.model_validate({"applications": [application]})


def _client() -> Any:
    return _get_global_client()
