"""Ray Serve in this process's own small cluster, with scripted engines instead of vLLM."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import ray
from ray import serve
from support.collector import Collector, collecting
from support.graph import ADMIN_TOKEN, Graph
from support.scripted_engine import ScriptedEngine

from deployments.graph import build_graph, engine_options
from deployments.launcher.ports import free_port
from serve_app.model_store import ModelStore
from serve_app.request.admin_token import TOKEN_VARIABLE
from serve_app.request.auth import make_key
from serve_app.settings import ModelSettings, parse_args

START_TIMEOUT_S = 120
TESTS = Path(__file__).parents[1]
EMBEDDER = {"id": "minilm", "source": "sentence-transformers/all-MiniLM-L6-v2", "threads": 1}
SHARED = frozenset({"main", "plain", "broken"})
"""Applications that several modules use."""

MODEL = {"id": "scripted", "source": "scripted", "engine": {"accelerator": "cpu"}, "drain_timeout_s": 0.0}


def scripted_engine(model: ModelSettings) -> serve.Application:
    options = engine_options(model) | {"ray_actor_options": {"num_cpus": 0.1}}
    return serve.deployment(ScriptedEngine, name=f"Engine:{model.id}", **options).bind(model)


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="session")
def serve_url(prepared_models: ModelStore, collector: Collector) -> Iterator[str]:
    port = free_port()
    # Replicas import the scripted engine; Ray does not hand this process's import path on.
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent / "scripts"))),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",  # milliseconds between exports
    }
    ray.init(
        address="local",  # whatever other cluster this machine runs
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"env_vars": environment},
    )
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


Deploy = Callable[..., Graph]
EngineOf = Callable[[ModelSettings], serve.Application]


@pytest.fixture(scope="session")
def deploy(serve_url: str, tmp_path_factory: pytest.TempPathFactory) -> Deploy:
    """Deploys a graph under a route of its own."""

    def start(
        name: str, args: dict[str, Any], tenants: tuple[str, ...] = (), engine: EngineOf = scripted_engine
    ) -> Graph:
        keys, records = {}, []
        for tenant in tenants:
            keys[tenant], record = make_key(tenant, admin=tenant == "admin", debug_timing=tenant == "a")
            records.append(record)
        if tenants:
            import msgspec

            path = tmp_path_factory.mktemp(name) / "keys.json"
            path.write_bytes(msgspec.json.encode(records))
            args = {**args, "auth": {"keys_file": str(path)}}
        responses = {"path": str(tmp_path_factory.mktemp("responses"))}
        settings = parse_args({"models": [MODEL], "responses": responses, **args}, source=name)
        graph = build_graph(settings, {**os.environ, TOKEN_VARIABLE: ADMIN_TOKEN}, engine=engine)
        serve.run(graph, name=name, route_prefix=f"/{name}")
        return Graph(f"{serve_url}/{name}", name, keys)

    return start


@pytest.fixture(scope="session")
def deploy_ready(deploy: Deploy) -> Deploy:
    """Deploys a graph and waits until it can answer."""

    def start(name: str, args: dict[str, Any]) -> Graph:
        graph = deploy(name, args)
        wait_ready(graph)
        return graph

    return start


@pytest.fixture(scope="module", autouse=True)
def only_shared_applications_stay() -> Iterator[None]:
    """What one module deployed ends with it: dozens of gateways would slow down all tests behind it."""
    yield
    if ray.is_initialized():
        for name in serve.status().applications.keys() - SHARED:
            serve.delete(name, _blocking=False)


@pytest.fixture(scope="session")
def main(deploy: Deploy, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Everything switched on: keys of three tenants, embedder, cache."""
    # The scripted engine answers in milliseconds: no look-up could win a race.
    cache = {"path": str(tmp_path_factory.mktemp("cache")), "lookup_budget_ms": 2000.0, "race": False}
    limits = {"max_body_bytes": 100_000}
    graph = deploy("main", {"embedder": EMBEDDER, "cache": cache, "limits": limits}, ("a", "b", "admin"))
    wait_ready(graph)
    return graph


@pytest.fixture(scope="session")
def plain(deploy: Deploy) -> Graph:
    """No keys, no embedder, no cache; two replicas."""
    graph = deploy("plain", {"models": [{**MODEL, "replicas": 2}]})
    wait_ready(graph)
    return graph


@pytest.fixture(scope="session")
def broken_cache(deploy: Deploy, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A store that cannot be opened: its folder is a file."""
    folder = tmp_path_factory.mktemp("broken") / "file"
    folder.write_text("not a folder")
    graph = deploy("broken", {"embedder": EMBEDDER, "cache": {"path": str(folder), "race": False}})
    wait_ready(graph)
    return graph


def wait_ready(graph: Graph) -> None:
    asyncio.run(_wait_ready(graph.url))


async def _wait_ready(url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/ready") as response:
                if response.status == 200:
                    return
                body = await response.text()
            assert time.monotonic() < deadline, body
            await asyncio.sleep(0.2)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests come last: their cluster runs until the end of the session."""
    for item in items:
        if is_here(item):
            item.add_marker(pytest.mark.graph)
    items.sort(key=is_here)


def is_here(item: pytest.Item) -> bool:
    return Path(__file__).parent in item.path.parents
