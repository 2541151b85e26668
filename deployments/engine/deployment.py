"""The Engine deployment: one vLLM engine behind its own private HTTP listener.

Ray Serve starts, places, checks and scales it; requests arrive over HTTP, not through Ray calls
(``deployments.wire`` says why).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer
from starlette.types import ASGIApp

from deployments.engine.checks import check_devices, check_on_node
from deployments.engine.cpu.threads import runs_in_one_process
from deployments.engine.parsers import model_parsers
from deployments.engine.resume import ResumedChats
from deployments.engine.sleep.announcements import announced
from deployments.engine.sleep.transitions import EngineSleep
from deployments.engine.start.environment import engine_environment, node_environment
from deployments.engine.start.phases import EngineStart
from deployments.engine.start.traces import held_spans, seldom_said, trace_arguments, trace_environment
from deployments.engine.start.warm_up import Shapes, need_audio_packages, warm_up
from deployments.engine.vllm import bridge as vllm_bridge
from deployments.engine.vllm.arguments import (
    DEVICE_NUMBER,
    WORKER_EXTENSION,
    check_arguments,
    check_config,
    engine_arguments,
    placement_group_config,
)
from deployments.engine.vllm.fork_server import ForkServer
from deployments.platform.serve import node_address
from deployments.wire.listener import PrivateListener, listening
from serve_app.autoscaling import GatewayLoad, GatewayReports, ReplicaLoad
from serve_app.autoscaling.metrics import engine_metrics
from serve_app.fleet import EngineReport, EngineState
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import ModelSettings
from serve_app.settings.engine.parsers import REASONING_OPTION
from serve_app.settings.network import ANY_PORT
from serve_app.settings.paths import GENERATE, offered

USAGE_STATS = "RAY_USAGE_STATS_ENABLED"


class Engine(LLMServer):
    """An ``LLMServer`` with its own listener. It is one class because Serve calls the hooks of one class.

    Start: load the model, listen, warm up, then report ready (the constructor returns).
    Stop: report draining, let running requests finish, close the listener, end vLLM.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        llm_config: LLMConfig | None = None,
        *,
        model: ModelSettings,
        ports: range = ANY_PORT,
        fork_server: ForkServer | None = None,
    ) -> None:
        """``llm_config``: of an engine whose deployment ``ray.serve.llm`` built; else it is made here.
        ``fork_server``: for vLLM's core."""
        self._start_up = EngineStart(model)
        self._model = model
        self._state = EngineState.WARMING
        self._gateways = GatewayReports()
        self._fork_server = fork_server
        with self._start_up.loading():
            store = ModelStore(default_cache_dir())
            check_on_node(model, store)
            listens = listening(node_address(), ports)  # a range without a port fails now, not after loading
            os.environ.update(node_environment(model, store, os.environ))
            os.environ.update(trace_environment(os.environ))
            llm_config = llm_config or configured(model, store)
            resolve_on_node(llm_config, model, store)
            self._arguments = dict(llm_config.engine_kwargs)
            self._seldom = ExitStack()
            self._seldom.enter_context(seldom_said())
            await super().__init__(llm_config, **self._server_arguments())
            if self._arguments.get(WORKER_EXTENSION) == DEVICE_NUMBER:
                check_devices(model, await vllm_bridge.device_numbers(self))
            self._held_spans = held_spans()
        vllm_bridge.tell_refusals(self)
        self._probe = vllm_bridge.load_probe(self)
        self._capacity = vllm_bridge.max_num_seqs(self)
        self._kv_cache_tokens = vllm_bridge.kv_cache_tokens(self)
        self._token_limits = vllm_bridge.token_limits(self)
        self._caches_prefixes = vllm_bridge.caches_prefixes(self)
        self._tasks = await vllm_bridge.tasks(self)
        self._listener = PrivateListener(await self._build_app(), listens)
        self._listener.start()
        with self._start_up.warming():
            warmed = await self._warm_up()
        self._probe.reset_speed()
        self._start_s = self._start_up.phases(warmed)
        self._sleep = self._follow_policy() if model.may_sleep else None
        self._state = EngineState.READY

    async def describe(self) -> EngineReport:
        """This engine's address, state and load; every gateway polls it."""
        load, address = self._probe.load(), self._listener.address
        return EngineReport(
            replica_id=serve.get_replica_context().replica_id.unique_id,
            model=self._model.id,
            url=address.url,
            headers={},
            secret=address.secret,
            socket=address.socket,
            state=self._current_state(),
            running=load.running,
            waiting=load.waiting,
            kv_cache_usage=load.kv_cache_usage,
            capacity=self._capacity,
            kv_cache_tokens=self._kv_cache_tokens,
            token_limits=self._token_limits,
            # A reasoning parser buffers text, so token ids would run ahead of the text.
            gives_token_ids=not self._arguments.get(REASONING_OPTION),
            resumes_chats=GENERATE in self._tasks,
            takes_tools=bool(self._arguments.get("tool_call_parser")),
            shows_prefixes=self._caches_prefixes,
            speculation=self._probe.speculation(),
            start_s=self._start_s,
            paths=offered(self._model.paths, self._tasks),
            tasks=self._tasks,
        )

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Serve's hook for custom metrics; Serve's own counters do not see requests over HTTP."""
        now, load = time.monotonic(), self._probe.load()
        speed, most = self._probe.speed.recent(now), self._model.max_requests_per_replica
        own = ReplicaLoad(
            running=load.running,
            waiting=load.waiting,
            waiting_tokens=load.waiting_tokens,
            kv_cache_usage=load.kv_cache_usage,
            capacity=min(self._capacity, most or self._capacity),
            prefill_tokens_per_s=speed.prefill_tokens_per_s,
            service_s=speed.service_s,
            itl_s=speed.itl_s if load.running else None,
            withdrawn=float(self._is_withdrawn),
        )
        return engine_metrics(own, self._gateways.newest(now))

    async def record_traffic(self, gateway: GatewayLoad) -> None:
        """Receive a gateway's traffic report; this replica passes it on to the autoscaling policy."""
        self._gateways.record(gateway, time.monotonic())

    async def send_held(self, keys: Sequence[str]) -> None:
        """A gateway keeps the traces of these requests: vLLM's spans of them are sent."""
        if self._held_spans is not None:
            self._held_spans.send(keys)

    async def check_health(self) -> None:
        """Serve's health check; a replica that fails it is replaced."""
        await super().check_health()
        sleep: EngineSleep | None = getattr(self, "_sleep", None)
        if sleep is not None:
            sleep.check()

    async def __del__(self) -> None:
        sleep: EngineSleep | None = getattr(self, "_sleep", None)
        if sleep is not None:
            await sleep.stop()
        listener: PrivateListener | None = getattr(self, "_listener", None)
        if listener is not None:
            self._state = EngineState.DRAINING
            await listener.stop(self._model.drain_timeout_s)
        await super().__del__()
        if getattr(self, "engine", None) is not None:
            await asyncio.to_thread(vllm_bridge.shut_down, self)
        start_up: EngineStart | None = getattr(self, "_start_up", None)
        if start_up is not None:
            start_up.close()
        seldom: ExitStack | None = getattr(self, "_seldom", None)
        if seldom is not None:
            seldom.close()

    @property
    def _is_withdrawn(self) -> bool:
        return self._sleep is not None and self._sleep.is_withdrawn

    def _current_state(self) -> EngineState:
        if self._probe.failed:
            return EngineState.FAILED
        if self._state is not EngineState.READY or self._sleep is None or not self._sleep.is_withdrawn:
            return self._state
        return EngineState.ASLEEP if self._sleep.is_asleep else EngineState.WITHDRAWN

    def _follow_policy(self) -> EngineSleep:
        """From now on sleep and wake as the autoscaling policy decides."""
        context = serve.get_replica_context()
        replica = context.replica_id.unique_id

        def is_busy() -> bool:
            load = self._probe.load()
            return bool(load.running or load.waiting)

        level = self._model.sleep_level
        return EngineSleep(
            should_sleep=lambda: replica in announced(context.app_name, context.deployment),
            is_busy=is_busy,
            sleep=lambda: vllm_bridge.fall_asleep(self, level),
            wake=lambda: vllm_bridge.wake_up(self, level),
        )

    async def _start_engine(self) -> None:
        """Start vLLM. The base class also starts an actor that counts for Ray's usage statistics how
        ``ray.serve.llm`` is used, and waits while that imports vLLM: not where they are off."""
        if os.environ.get(USAGE_STATS) == "0":
            assert self.engine is not None, "the base class has just made it"
            await self.engine.start()  # type: ignore[no-untyped-call]
        else:
            await super()._start_engine()  # type: ignore[no-untyped-call]

    def _server_arguments(self) -> dict[str, Any]:
        """Further arguments of the base server's constructor, besides its configuration."""
        return {"engine_cls": _engine_class(self._model, self._fork_server)}

    async def _build_app(self) -> ASGIApp:
        """The ASGI app that the listener serves."""
        app = await vllm_bridge.build_asgi_app(self)
        if GENERATE not in self._tasks:
            return app
        return ResumedChats(app, vllm_bridge.resuming(self).telling, vllm_bridge.vocabulary(self))

    async def _warm_up(self) -> dict[str, float]:
        need_audio_packages(self._tasks)
        engine = self._model.managed_engine
        if not engine.warm_up:
            return {}
        shapes = Shapes(
            context=self._token_limits.context or 0,
            batched_tokens=vllm_bridge.max_num_batched_tokens(self),
            sequences=self._capacity,
            speculates=engine.speculation is not None,
            structured=engine.structured_outputs_backend is not None,
            tasks=self._tasks,
            differs_by_size=engine.accelerator != "cpu" or not engine.enforce_eager,
        )
        address, budget_s = self._listener.address, engine.warm_up_budget_s
        return await warm_up(address, self._model.id, shapes, budget_s=budget_s)


def _engine_class(model: ModelSettings, fork_server: ForkServer | None) -> Any:
    """The engine class for ``LLMServer``; ``None``: ``ray.serve.llm``'s default. Imports vLLM, in the
    replica."""
    if not runs_in_one_process(model):
        return None
    from deployments.engine.vllm.one_process import OneProcessEngine

    return partial(OneProcessEngine, fork_server=fork_server)


def configured(model: ModelSettings, store: ModelStore) -> LLMConfig:
    """The configuration of an engine that starts in this process, with its arguments checked: the process
    that builds the graph does it only where engines run already (``deployments.graph``). What vLLM derives
    for GPUs it checks itself, in a process that sees them.

    Raises:
        SettingsError: vLLM refuses an argument.
        ValueError: Ray does.
    """
    check_arguments(model, store)
    if model.managed_engine.accelerator == "cpu":
        check_config(model, store)
    return llm_config(model, store)


def llm_config(model: ModelSettings, store: ModelStore) -> LLMConfig:
    """``ray.serve.llm``'s configuration of a model; prepared folders in ``store`` are preferred to the
    hub."""
    engine = model.managed_engine
    source = store.resolve(model.managed_source)
    options: dict[str, Any] = {
        "model_loading_config": {"model_id": model.id, "model_source": source},
        "accelerator_config": {"kind": engine.accelerator},
        "engine_kwargs": engine_arguments(model, store),
        "runtime_env": {"env_vars": engine_environment(model)},
        "deployment_config": {"ray_actor_options": {"num_cpus": engine.num_cpus}},
    }
    if Path(source).is_dir():
        options["callback_config"] = {"callback_class": "deployments.engine.start.local_model.LocalModel"}
    if engine.accelerator_type is not None:
        options["accelerator_type"] = engine.accelerator_type
    placement = placement_group_config(engine)
    if placement is not None:
        options["placement_group_config"] = placement
    return LLMConfig(**options)


TELLING = ("enable_per_request_metrics", "enable_prompt_tokens_details")
"""Arguments of vLLM's HTTP server: the last event of a stream, and every whole answer, tell how long the
request waited and was computed, and how many of its tokens were cached. Its engine refuses them."""


def resolve_on_node(config: LLMConfig, model: ModelSettings, store: ModelStore) -> None:
    """Name the model, its draft and its adapters in ``config`` as this node has them: by their prepared
    folder here, else by their hub id. The graph was built on another node, which may have other folders."""
    source = store.resolve(model.managed_source)
    engine_config = config.get_engine_config()
    assert engine_config is not None, "ray.serve.llm makes one for every vLLM engine"
    if "://" not in source:
        engine_config.hf_model_id = source
    here = engine_arguments(model, store)
    if "speculative_config" in here:
        config.update_engine_kwargs(speculative_config=here["speculative_config"])
    parsers = model_parsers(model, store, fetch=True).arguments()
    if REASONING_OPTION in parsers:
        config.update_engine_kwargs(**{REASONING_OPTION: parsers.pop(REASONING_OPTION)})
    config.engine_kwargs.update(parsers)
    engine_config.frontend_kwargs.update(parsers)
    for name in TELLING:
        engine_config.frontend_kwargs.setdefault(name, True)
        config.engine_kwargs.setdefault(name, True)
    traces = trace_arguments(os.environ)
    if "otlp_traces_endpoint" not in config.engine_kwargs and traces:
        config.update_engine_kwargs(**traces)
    if "lora_modules" in here:  # the HTTP server's argument, which vLLM's engine refuses
        config.engine_kwargs["lora_modules"] = here["lora_modules"]
        engine_config.frontend_kwargs["lora_modules"] = here["lora_modules"]
