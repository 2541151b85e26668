"""Builds the graph: which deployments there are, how they are wired, and their Serve options. Only here.

    client ─► Gateway ─┬─► Embedder ◄── SemanticCache (asks for its dimension)
                       ├─► SemanticCache ─► Qdrant, embedded or a server
                       ├─► Responses ─► SQLite, embedded
                       ├─► Accounts ─► SQLite, embedded
                       ├─► Feedback ─► SQLite, embedded
                       ├─► Engine × replicas, one deployment per model (HTTP; Ray only for control)
                       └─► external upstreams (HTTP)

``serve run config.yaml`` calls :func:`build` with the application's ``args``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from deployments.accounts.deployment import Accounts
from deployments.cache.deployment import SemanticCache
from deployments.embedder.deployment import Embedder
from deployments.engine.sizing import running_plan
from deployments.feedback.deployment import Feedback
from deployments.gateway.autoscaling import PERIOD_S
from deployments.gateway.deployment import Gateway
from deployments.gateway.guardrails.judges import guard_headers
from deployments.gateway.placement.external import external_upstreams
from deployments.gateway.sign_in.sign_in import client_secret
from deployments.platform.cluster import check_room, engines_run, is_one_node
from deployments.platform.prompt_folder import located
from deployments.platform.secret_environment import with_secrets
from deployments.platform.serve import listening_host
from deployments.platform.versions import keep_versions, versioned
from deployments.responses.deployment import Responses
from serve_app.engines.placement import gateway_bounds, only_on
from serve_app.errors import SettingsError
from serve_app.model_choice.registry import load_rule
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.request.admin_token import AdminToken, load_admin_token
from serve_app.request.auth import KeySources, load_keys
from serve_app.request.tenant_marks import new_secret
from serve_app.settings import KeySettings, ModelSettings, Settings, check_exposure, parse_args
from serve_app.settings.deployment_names import ENGINE, engine_deployment
from serve_app.settings.doubts import doubts
from serve_app.settings.network import ANY_PORT
from serve_app.upgrades import part_versions

SOURCE = "applications[].args"
"""The key of the settings in a Serve config file: a builder gets the arguments, not the file's name."""

GATEWAY_MAX_ONGOING = 10_000
"""So high that Serve never queues: the gateway has its own limit (limits.max_concurrent_requests), beyond
which it answers 429 at once."""

EMBEDDER_MAX_ONGOING = 10_000
"""So high that Serve never queues, since its queue knows no tenants: the embedder lets them take turns, and
gateways bound the texts of each (limits.max_embedding_texts_per_tenant)."""

CONTROL_MAX_ONGOING = 1_000
"""Concurrent calls to the cache, to the store of responses, to the accounts and to the feedback."""

HEALTH_CHECK_PERIOD_S = 1.0
"""Serve notices a replica's death at its next health check. With Serve's default of 10 s, clients of the only
gateway were refused for up to 12 s after it died."""

DRAIN_MARGIN_S = 15.0
"""Time beyond an engine's own drain, for closing the listener and ending vLLM's processes."""

QUIET = LoggingConfig(enable_access_log=False)
"""No access log: a line per request costs more than the gateway's own work. Traces and /admin/latency show
more."""

ONE_LOOP = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
"""A replica's server, its own code and its calls to other deployments share one event loop (uvloop): by
default every chunk of a gateway, and every call of embedder and cache, crosses from Serve's thread to a
second one (see docs/benchmarks.md). What takes long in them has threads of its own."""

ONE_SPARE = 1
"""Percent of the replicas that a roll may start before it stops any: rounded up, so one. Owners of files have
none: two processes must not have one open."""

DRAFTS_ALONE = (
    "model %s: with keys, `suffix` drafts from each request's own text alone, not from former answers "
    "(engine.speculation.share_drafts)"
)

logger = logging.getLogger("ray.serve")

EngineBuilder = Callable[[ModelSettings], serve.Application]


def build(args: dict[str, Any]) -> serve.Application:
    """The application of a Serve config file.

    Raises:
        RayServeException: wrong settings; Serve shows the one message and starts nothing.
    """
    keep_versions()
    try:
        settings = parse_args(args, source=SOURCE)
        check_exposure(settings, listening_host(), source=SOURCE)
        check_room(settings, os.environ, source=SOURCE)
        for doubt in doubts(settings):
            logger.warning("%s: %s", SOURCE, doubt)
        engine = partial(build_engine, ports=settings.network.private_ports)
        return build_graph(settings, with_secrets(os.environ), engine=engine)
    except SettingsError as error:
        raise RayServeException(f"Wrong settings: {error}") from None


def build_graph(
    settings: Settings, environment: Mapping[str, str], *, engine: EngineBuilder
) -> serve.Application:
    """Wire the deployments. ``engine`` makes a model's engine deployment; tests pass a substitute."""
    for auto in settings.auto_models:
        load_rule(auto.rule)  # a missing user function fails here, before any model loads
    versions = part_versions(settings)
    engines = {
        model.id: versioned(engine(model), versions[engine_deployment(model.id)])
        for model in settings.engine_models
        if model.engine is not None
    }
    for model, asked in zip(settings.engine_models, settings.models, strict=True):
        if model != asked:
            logger.warning(DRAFTS_ALONE, model.id)
    embedder = _embedder(settings, versions)
    cache = _semantic_cache(settings, embedder, versions)
    return _deployment(
        serve.ingress()(Gateway),
        name="Gateway",
        **gateway_replicas(settings),
        max_ongoing_requests=GATEWAY_MAX_ONGOING,
        # As long as the slowest engine's drain: a replaced gateway lets its streams finish.
        graceful_shutdown_timeout_s=max(model.drain_timeout_s for model in settings.models) + DRAIN_MARGIN_S,
        max_surge_percent=ONE_SPARE,
        ray_actor_options={
            "num_cpus": settings.gateway.num_cpus,
            "runtime_env": {"env_vars": ONE_LOOP},
            **only_on(settings.nodes.front),
        },
    ).bind(
        located(settings),
        key_sources(settings, environment),
        engines,
        external=external_upstreams(settings, environment),
        guard_headers=guard_headers(settings.guardrails, environment),
        embedder=embedder,
        cache=cache,
        responses=_owner(Responses, settings.responses, settings, versions),
        accounts=_owner(Accounts, settings.accounts, settings, versions),
        feedback=_owner(Feedback, settings.feedback, settings, versions),
        tenant_secret=new_secret(),
        admin_token=admin_token(settings, environment),
        client_secret=client_secret(settings, environment),
        planner=running_plan,
    )


def build_engine(model: ModelSettings, *, ports: range = ANY_PORT) -> serve.Application:
    """One vLLM engine deployment, whose replicas listen at one of ``ports`` each. Raises: SettingsError: Ray
    or vLLM refuses an argument."""
    # Here, not at the top: a test's graph has other engines.
    from deployments.engine.checks import check_engine, check_on_node, check_served

    store, settings = ModelStore(default_cache_dir()), model.managed_engine
    check_served(model)
    check = check_on_node if is_one_node() else check_engine
    check(model, store)
    is_alone = settings.data_parallel_size == 1 and settings.disaggregation is None
    if is_alone and not engines_run():
        # vLLM's import takes longer than all else here. The engine checks the same in its own process, and
        # nothing runs that a wrong argument could harm.
        return _alone(model, ports)
    from deployments.engine.vllm.arguments import check_arguments, check_config

    check_arguments(model, store)
    check_config(model, store)
    return _alone(model, ports) if is_alone else _of_several(model, store, ports)


def _alone(model: ModelSettings, ports: range) -> serve.Application:
    from deployments.engine.replica import engine_replica

    return engine_replica(model, ports, engine_options(model))


def _of_several(model: ModelSettings, store: ModelStore, ports: range) -> serve.Application:
    """An engine whose deployments ``ray.serve.llm`` places: data-parallel ranks, or prefill and decode."""
    from ray.serve.llm import build_llm_deployment

    from deployments.engine.data_parallel import DataParallelEngine
    from deployments.engine.deployment import llm_config
    from deployments.engine.prefill.disaggregation import build_disaggregated

    try:
        if model.managed_engine.disaggregation is not None:
            return build_disaggregated(model, store, engine_options(model), ports)
        return build_llm_deployment(
            llm_config(model, store),
            deployment_cls=DataParallelEngine,
            name_prefix=ENGINE,
            bind_kwargs={"model": model, "ports": ports},
            override_serve_options=engine_options(model),
        )
    except ValueError as error:  # Ray and vLLM validate their arguments before anything loads
        raise SettingsError(f"model {model.id!r}: engine: {error}") from error


def engine_options(model: ModelSettings) -> dict[str, Any]:
    """Serve's options for a model's engine deployment. To Serve a data-parallel rank is a replica."""
    options: dict[str, Any] = {
        "graceful_shutdown_timeout_s": model.drain_timeout_s + DRAIN_MARGIN_S,
        "max_surge_percent": ONE_SPARE,
        "logging_config": QUIET,
    }
    if isinstance(model.replicas, int):
        replicas = model.replicas * model.managed_engine.data_parallel_size
        return options | {"num_replicas": replicas, "autoscaling_config": None}
    from deployments.engine.autoscaling import autoscaling_config

    return options | {"num_replicas": None, "autoscaling_config": autoscaling_config(model.replicas)}


def gateway_replicas(settings: Settings) -> dict[str, Any]:
    """Serve's options for the number of gateways."""
    fewest, most = gateway_bounds(settings)
    if fewest == most:
        return {"num_replicas": fewest}
    rules = {"fewest": fewest, "most": most, "max_lag_s": settings.gateway.max_loop_lag_ms / 1000}
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=fewest,
            max_replicas=most,
            upscale_delay_s=0.0,
            downscale_delay_s=0.0,
            metrics_interval_s=PERIOD_S,
            policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]
                policy_function="deployments.gateway.autoscaling:GatewayPolicy", policy_kwargs=rules
            ),
        )
    }


def _deployment(cls: type[Any], **options: Any) -> serve.Deployment:
    """Wrap a plain class as a Serve deployment; this is the only place that does."""
    return serve.deployment(logging_config=QUIET, health_check_period_s=HEALTH_CHECK_PERIOD_S, **options)(cls)


def key_sources(settings: Settings, environment: Mapping[str, str]) -> KeySources | None:
    """The keys' hashes, or ``None`` if no key is needed. Raises: SettingsError."""
    return load_keys(settings.auth, environment) if isinstance(settings.auth, KeySettings) else None


def admin_token(settings: Settings, environment: Mapping[str, str]) -> AdminToken | None:
    """The token for ``/admin`` where one opens it; else ``None``. Raises: SettingsError."""
    return load_admin_token(environment, default_cache_dir()) if settings.has_admin_token else None


def _embedder(settings: Settings, versions: Mapping[str, str]) -> serve.Application | None:
    if settings.embedder is None:
        return None
    options: dict[str, Any] = {
        "num_cpus": settings.embedder.num_cpus,
        "runtime_env": {"env_vars": ONE_LOOP},
        **only_on(settings.nodes.front),
    }
    if settings.embedder.device == "cuda":
        options["num_gpus"] = 1
    application = _deployment(
        Embedder,
        name="Embedder",
        num_replicas=settings.embedder.replicas,
        max_surge_percent=ONE_SPARE,
        max_ongoing_requests=EMBEDDER_MAX_ONGOING,
        ray_actor_options=options,
    ).bind(settings.embedder, ports=settings.network.private_ports)
    return versioned(application, versions["Embedder"])


def _semantic_cache(
    settings: Settings, embedder: serve.Application | None, versions: Mapping[str, str]
) -> list[serve.Application]:
    """One deployment for each shard: Serve does not tell replicas apart, and a shard's partitions and
    purges are its own."""
    if settings.cache is None:
        return []
    options = _owner_options(settings.cache.num_cpus, settings)
    return [
        versioned(
            _deployment(
                SemanticCache, name=f"SemanticCache:{shard + 1}" if shard else "SemanticCache", **options
            ).bind(settings.cache, embedder, shard=shard, ports=settings.network.private_ports),
            versions["SemanticCache"],
        )
        for shard in range(settings.cache.shards)
    ]


def _owner(
    cls: type[Any], rules: Any, settings: Settings, versions: Mapping[str, str]
) -> serve.Application | None:
    """A part that owns a file; its name is that of its class. ``None`` where it is switched off: then it has
    no version. ``rules``: its section of the settings."""
    name = cls.__name__
    if name not in versions:
        return None
    application = _deployment(cls, name=name, **_owner_options(rules.num_cpus, settings)).bind(
        rules, ports=settings.network.private_ports
    )
    return versioned(application, versions[name])


def _owner_options(num_cpus: float, settings: Settings) -> dict[str, Any]:
    """One process owns a file, or the epochs and purges of a shard."""
    return {
        "num_replicas": 1,
        "max_ongoing_requests": CONTROL_MAX_ONGOING,
        "ray_actor_options": {
            "num_cpus": num_cpus,
            "runtime_env": {"env_vars": ONE_LOOP},
            **only_on(settings.nodes.files),
        },
    }


__all__ = ["build", "build_engine", "build_graph", "engine_options"]
