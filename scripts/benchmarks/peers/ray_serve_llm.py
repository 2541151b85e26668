"""``ray.serve.llm``'s own application (``build_openai_app``), with a scripted engine or a real one.

In Ray 2.60 this uses the variables ``RAYLLM_VLLM_ENGINE_CLS`` (the engine's class, meant for tests) and
``RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING`` (experimental; one model per application, needs HAProxy).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.endpoint import Endpoint, answers_chat, environment, local_url, wait_for
from benchmarks.peers.supervised import PEER_LAUNCHER, serve_config, supervised
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS, ENGINE_ENVIRONMENT
from deployments.launcher.ports import free_port

IMPORT_PATH = "ray.serve.llm:build_openai_app"
SCRIPTED_ENGINE = "benchmarks.peers.scripted_engine.ScriptedEngine"
SCRIPT_KEY = "script"  # in ``LLMConfig.experimental_configs``, where it reaches the engine
ANSWER_LIMIT_S = 60.0

# Settings of the supervisor that differ from Ray's defaults are undone for peers. Only the niceness of
# replicas stays 0 instead of 15: beside a busy load generator the peer would starve.
PLAIN_RAY = {
    "RAY_SERVE_ENABLE_HA_PROXY": "0",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "",
    "HF_HUB_OFFLINE": "1",
}
HAPROXY = {**PLAIN_RAY, "RAY_SERVE_ENABLE_HA_PROXY": "1"}
DIRECT_STREAMING = {**HAPROXY, "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1"}


@dataclass(frozen=True)
class Script:
    """The answers of a scripted engine: ``tokens`` tokens (or the request's ``max_tokens``), each of which
    takes ``itl_ms`` milliseconds."""

    tokens: int = 50
    itl_ms: float = 20.0


@contextmanager
def ray_serve_llm_default(
    model: str, script: Script | None = None, *, haproxy: bool = False, batching_ms: float | None = None
) -> Iterator[Endpoint]:
    """Ray's defaults: its Python proxy, and tokens in batches of 50 ms. ``haproxy`` uses HAProxy instead of
    the Python proxy; ``batching_ms`` replaces the 50 ms, and 0 sends every token alone."""
    config = scripted_llm_config(model, script or Script(), batching_ms)
    env = HAPROXY if haproxy else PLAIN_RAY
    with _application("ray.serve.llm", config, env) as endpoint:
        yield endpoint


@contextmanager
def ray_serve_llm_direct(model: str, script: Script | None = None) -> Iterator[Endpoint]:
    """Direct streaming: HAProxy asks a router for a replica, and passes the engine's bytes on."""
    config = scripted_llm_config(model, script or Script(), None)
    with _application("ray.serve.llm, direct streaming", config, DIRECT_STREAMING) as endpoint:
        yield endpoint


@contextmanager
def ray_serve_llm_real(model: str, model_folder: Path) -> Iterator[Endpoint]:
    """Like `ray_serve_llm_default`, with a vLLM engine on this machine's CPUs."""
    config = real_llm_config(model, model_folder)
    with _application("ray.serve.llm, vLLM", config, PLAIN_RAY) as endpoint:
        yield endpoint


@contextmanager
def _application(name: str, llm_config: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[Endpoint]:
    model = llm_config["model_loading_config"]["model_id"]
    port = free_port()
    url = local_url(port)
    config = serve_config("peer", IMPORT_PATH, {"llm_configs": [llm_config]}, port)
    with supervised(name, PEER_LAUNCHER, config, environment(**env)) as start:
        wait_for(lambda: answers_chat(url, model), ANSWER_LIMIT_S, f"{name}: a first answer")
        yield Endpoint(name, url, model, (start.pid,))


def scripted_llm_config(model: str, script: Script, batching_ms: float | None) -> dict[str, Any]:
    """An ``LLMConfig`` whose engine follows ``script``; no weights are loaded."""
    experimental: dict[str, Any] = {SCRIPT_KEY: asdict(script)}
    if batching_ms is not None:
        experimental["stream_batching_interval_ms"] = batching_ms
    return {
        "model_loading_config": {"model_id": model},
        "accelerator_config": {"kind": "cpu"},
        "runtime_env": {"env_vars": {"RAYLLM_VLLM_ENGINE_CLS": SCRIPTED_ENGINE}},
        "experimental_configs": experimental,
    }


def real_llm_config(model: str, model_folder: Path) -> dict[str, Any]:
    """An ``LLMConfig`` with the engine of config/local.yaml, without speculation."""
    return {
        "model_loading_config": {"model_id": model, "model_source": str(model_folder)},
        "accelerator_config": {"kind": "cpu"},
        "engine_kwargs": dict(ENGINE_ARGUMENTS),
        "runtime_env": {"env_vars": dict(ENGINE_ENVIRONMENT)},
        # For Ray's bookkeeping, from which it also derives OMP_NUM_THREADS. config/local.yaml has this value.
        "deployment_config": {"ray_actor_options": {"num_cpus": 0}},
        # no model is downloaded
        "callback_config": {"callback_class": "deployments.engine.start.local_model.LocalModel"},
    }
