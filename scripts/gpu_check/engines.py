"""The engine that the checks start: the same settings everywhere, small enough that two fit one GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.engine_server import engine_server
from benchmarks.peers import Endpoint
from benchmarks.vllm_load import MODEL

from deployments.engine.start.environment import engine_environment, node_environment
from deployments.engine.vllm.arguments import engine_arguments
from gpu_check.contract import Bench
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import ModelSettings

GPU_ENGINE: Mapping[str, Any] = {
    "accelerator": "gpu",
    "max_model_len": 2048,
    "max_num_seqs": 256,
    "enable_prefix_caching": True,
}
CPU_ENGINE: Mapping[str, Any] = {
    "accelerator": "cpu",
    "num_cpus": 0,
    "cpu_kv_cache_gib": 1,
    "dtype": "bfloat16",
    "max_model_len": 2048,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "enable_prefix_caching": True,
}
SMALL_GIB, LEAST_SHARE, MOST_SHARE = 12.0, 0.1, 0.4
"""Shares of a GPU for an engine that is not alone or whose speed does not depend on it."""

EXACT: Mapping[str, Any] = {"dtype": "float32"}
"""In 16 bits a step of several tokens rounds differently from a step of one, and greedy answers soon
differ."""

SERVER_LISTS = ("allowed_media_domains",)
"""Arguments with a list, which the checks do not need."""


def settings(bench: Bench, *, small: bool = False, **engine: Any) -> dict[str, Any]:
    """The model in Promptly's settings; ``engine``: changes of its engine."""
    base = dict(GPU_ENGINE if bench.on_gpu else CPU_ENGINE)
    if bench.on_gpu and small:
        share = SMALL_GIB / bench.machine.gpus[0].memory_gib
        base["gpu_memory_utilization"] = round(min(MOST_SHARE, max(LEAST_SHARE, share)), 2)
    return {"id": MODEL, "source": bench.model, "engine": base | engine}


def arguments(model: Mapping[str, Any]) -> dict[str, Any]:
    """What Promptly would pass to vLLM, as arguments of ``vllm serve``."""
    found = engine_arguments(ModelSettings.model_validate(model), store())
    return {name: value for name, value in found.items() if name not in SERVER_LISTS}


def variables(bench: Bench, model: Mapping[str, Any]) -> dict[str, str]:
    """The environment that Promptly would give the engine."""
    asked = ModelSettings.model_validate(model)
    named = engine_environment(asked)
    offline = {"HF_HUB_OFFLINE": "1"} if Path(bench.model).is_dir() else {}
    return offline | named | node_environment(asked, store(), {**os.environ, **named})


@contextmanager
def started(bench: Bench, model: Mapping[str, Any], name: str = "vLLM") -> Iterator[Endpoint]:
    """vLLM's own server with the arguments and the environment that Promptly gives an engine.

    Raises:
        PeerError: it did not start, with the end of its log.
    """
    with engine_server(Path(bench.model), arguments(model), variables(bench, model), name=name) as endpoint:
        yield endpoint


def store() -> ModelStore:
    return ModelStore(default_cache_dir())
