"""The class that Serve deploys for an engine of one rank, and where Ray places it.

The engine behind it subclasses ``ray.serve.llm``'s server, whose import takes vLLM's with it: seconds of a
start (docs/benchmarks.md). This class imports it in the replica only, so that the process which builds the
graph does without; a fork server imports meanwhile what vLLM's core needs. ``ray.serve.llm`` itself builds
the deployments of data-parallel ranks and of prefill.

:func:`replica_options` gives what ``build_llm_deployment`` would, which a test compares; when Ray moves, look
there, at ``LLMServer.get_deployment_options`` and at ``VLLMEngineConfig.placement_bundles``.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ray import serve

from deployments.engine.cpu.openmp import import_environment
from deployments.engine.cpu.threads import bind_threads, runs_in_one_process
from deployments.engine.start.environment import engine_environment, node_environment
from deployments.engine.vllm.fork_server import ForkServer
from serve_app.autoscaling import GatewayLoad
from serve_app.engines.placement import SHARE
from serve_app.fleet import EngineReport
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import EngineSettings, ModelSettings
from serve_app.settings.deployment_names import engine_deployment
from serve_app.settings.network import ANY_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deployments.engine.deployment import Engine

MAX_ONGOING = 1_000_000_000
"""So high that Serve never queues: requests come over HTTP, and a gateway knows each engine's capacity."""

HEALTH_CHECK_S = 10
"""Period and limit of Serve's health check, ``ray.serve.llm``'s defaults: a broken engine is found much
earlier, by the gateways."""

TYPE_SHARE = 0.001
"""Of the resource ``accelerator_type:…``, which a node with such a device has once."""


class EngineReplica:
    """Serve's hooks and the gateways' calls; each is the engine's own."""

    async def __init__(self, model: ModelSettings, ports: range = ANY_PORT) -> None:  # type: ignore[misc]
        # It lives as long as the engine: the CPUs are leased.
        self._cpus = await asyncio.to_thread(bind_threads, model)
        os.environ.update(node_environment(model, ModelStore(default_cache_dir()), os.environ))
        variables = import_environment(os.environ) if runs_in_one_process(model) else None
        fork_server = None if variables is None else ForkServer(variables)
        with _collected_once():
            from deployments.engine.deployment import Engine

        # Before its constructor: Serve's destructor ends an engine whose start fails half-way.
        self._engine: Engine = Engine.__new__(Engine)
        await self._engine.__init__(model=model, ports=ports, fork_server=fork_server)  # type: ignore[misc]

    async def describe(self) -> EngineReport:
        return await self._engine.describe()

    def record_autoscaling_stats(self) -> dict[str, float]:
        return self._engine.record_autoscaling_stats()

    async def record_traffic(self, gateway: GatewayLoad) -> None:
        await self._engine.record_traffic(gateway)

    async def send_held(self, keys: Sequence[str]) -> None:
        await self._engine.send_held(keys)

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def __del__(self) -> None:
        engine: Engine | None = getattr(self, "_engine", None)
        if engine is not None:
            await engine.__del__()


@contextmanager
def _collected_once() -> Iterator[None]:
    """Imports make 300,000 objects that live as long as the process: to look at them again and again takes
    a tenth of the imports' time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def engine_replica(model: ModelSettings, ports: range, options: dict[str, Any]) -> serve.Application:
    """The deployment of ``model``'s engine. ``options``: Serve's, which come before those here."""
    deployment: serve.Deployment = serve.deployment(**replica_options(model) | options)(EngineReplica)
    return deployment.bind(model=model, ports=ports)


def replica_options(model: ModelSettings) -> dict[str, Any]:
    """Serve's options by the engine's settings."""
    engine = model.managed_engine
    return {
        "name": engine_deployment(model.id),
        "max_ongoing_requests": MAX_ONGOING,
        "health_check_period_s": HEALTH_CHECK_S,
        "health_check_timeout_s": HEALTH_CHECK_S,
        "ray_actor_options": {
            "num_cpus": engine.num_cpus,
            "runtime_env": {"env_vars": engine_environment(model)},
        },
        "placement_group_bundles": bundles(engine),
        "placement_group_strategy": engine.placement.upper(),
    }


def bundles(engine: EngineSettings) -> list[dict[str, float]]:
    """What Ray reserves: a bundle for each device. The replica's own CPUs are in the first, where it runs."""
    device = {"CPU": 1.0} if engine.accelerator == "cpu" else {"GPU": 1.0}
    if engine.accelerator_type is not None:
        device[f"accelerator_type:{engine.accelerator_type}"] = TYPE_SHARE
    if engine.nodes is not None:
        device[engine.nodes] = SHARE
    found = [dict(device) for _ in range(engine.num_devices)]
    found[0]["CPU"] = found[0].get("CPU", 0.0) + engine.num_cpus
    return found
