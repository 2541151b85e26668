"""The Engine deployment: one vLLM engine behind its own private HTTP listener.

Ray Serve starts, places, checks and scales it; requests reach it over HTTP, not through Ray calls
(see docs/architecture.md for why).
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from deployments import vllm_bridge
from deployments.listener import SECRET_HEADER, PrivateListener
from deployments.vllm_arguments import engine_arguments, placement_group_config
from deployments.warm_up import warm_up
from serve_app.fleet import EngineReport, EngineState
from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings

logger = logging.getLogger("ray.serve")


class Engine(LLMServer):
    """An ``LLMServer`` that can be reached directly.

    Start: load the model, listen, warm up, then count as ready (the constructor returns).
    Stop: report draining, let running answers finish, close the listener, end vLLM.
    """

    async def __init__(self, llm_config: LLMConfig, *, model: ModelSettings) -> None:  # type: ignore[misc]  # Serve awaits it
        started = time.monotonic()
        self._model = model
        self._state = EngineState.WARMING
        await super().__init__(llm_config)
        loaded = time.monotonic()
        self._probe = vllm_bridge.load_probe(self)
        self._capacity = vllm_bridge.max_num_seqs(self)
        self._kv_cache_tokens = vllm_bridge.kv_cache_tokens(self)
        self._token_limits = vllm_bridge.token_limits(self)
        app = await vllm_bridge.build_asgi_app(self)
        self._listener = PrivateListener(app, str(ray.util.get_node_ip_address()))  # type: ignore[no-untyped-call]
        self._listener.start()
        warmed = await self._warm_up()
        self._state = EngineState.READY
        phases = {"load": loaded - started, **warmed}
        shown = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in phases.items())
        logger.info("engine %s ready: %s", model.id, shown)

    async def describe(self) -> EngineReport:
        """Where this engine listens, and its load; polled by every gateway."""
        load = self._probe.load()
        return EngineReport(
            replica_id=serve.get_replica_context().replica_id.unique_id,
            model=self._model.id,
            url=self._listener.url,
            headers={SECRET_HEADER: self._listener.secret},
            state=EngineState.FAILED if self._probe.failed else self._state,
            running=load.running,
            waiting=load.waiting,
            kv_cache_usage=load.kv_cache_usage,
            capacity=self._capacity,
            kv_cache_tokens=self._kv_cache_tokens,
            token_limits=self._token_limits,
            # A reasoning parser keeps text back in a buffer of its own: tokens would run ahead of it.
            gives_token_ids="reasoning_parser" not in self._model.managed_engine.options,
        )

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Serve's hook for custom metrics: its own counters see no request of ours."""
        load = self._probe.load()
        return {"running": float(load.running), "waiting": float(load.waiting)}

    async def __del__(self) -> None:
        listener: PrivateListener | None = getattr(self, "_listener", None)
        if listener is not None:
            self._state = EngineState.DRAINING
            await listener.stop(self._model.drain_timeout_s)
        await super().__del__()
        if getattr(self, "engine", None) is not None:
            await asyncio.to_thread(vllm_bridge.shut_down, self)

    async def _warm_up(self) -> dict[str, float]:
        if not self._model.managed_engine.warm_up:
            return {}
        return await warm_up(self._listener.url, self._listener.secret, self._model.id)


def llm_config(model: ModelSettings, store: ModelStore) -> LLMConfig:
    """``ray.serve.llm``'s configuration of a model; prepared folders in ``store`` go before the hub."""
    engine = model.managed_engine
    source = store.resolve(model.managed_source)
    options: dict[str, Any] = {
        "model_loading_config": {"model_id": model.id, "model_source": source},
        "accelerator_config": {"kind": engine.accelerator},
        "engine_kwargs": engine_arguments(model, store),
        "runtime_env": {"env_vars": engine_environment(model, store)},
        "deployment_config": {"ray_actor_options": {"num_cpus": engine.num_cpus}},
    }
    if Path(source).is_dir():
        options["callback_config"] = {"callback_class": "deployments.local_model.LocalModel"}
    if engine.accelerator_type is not None:
        options["accelerator_type"] = engine.accelerator_type
    placement = placement_group_config(engine)
    if placement is not None:
        options["placement_group_config"] = placement
    return LLMConfig(**options)


def engine_environment(model: ModelSettings, store: ModelStore) -> dict[str, str]:
    """Environment variables of the engine's processes; the settings' own go before all of them."""
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        # What is compiled at first use is kept between starts.
        "TORCHINDUCTOR_CACHE_DIR": str(store.cache_dir / "torchinductor"),
    }
    if model.managed_engine.accelerator == "cpu" and model.managed_engine.enforce_eager:
        # vLLM's sampler compiles a few functions all the same: on two cores, 8 s of every start.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    if model.managed_engine.cpu_kv_cache_gib is not None:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(model.managed_engine.cpu_kv_cache_gib)
    return environment | model.managed_engine.env
