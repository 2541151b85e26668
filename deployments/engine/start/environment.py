"""Environment variables of an engine's processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import which

from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings

CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
    "NUMBA_CACHE_DIR": "numba",
}
"""Folders of compiled code, under Promptly's cache folder: vLLM's own, then those of torch.compile, Triton
and numba."""

COPIED = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
"""Names that vLLM copies to the workers that Ray starts for it, beside its own (``vllm/ray/ray_env.py``)."""


def engine_environment(model: ModelSettings) -> dict[str, str]:
    """Environment variables of the engine's processes that are the same on every node. ``engine.env``
    overrides all of them."""
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        # An allowed media host must not redirect to one that is not allowed.
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
    }
    if model.managed_engine.accelerator == "cpu" and model.managed_engine.enforce_eager:
        # vLLM's sampler compiles a few functions even in eager mode: 8 s of every start on two cores.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    if model.managed_engine.cpu_kv_cache_gib is not None:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(model.managed_engine.cpu_kv_cache_gib)
    return environment | model.managed_engine.env


def node_environment(
    model: ModelSettings, store: ModelStore, environment: Mapping[str, str], *, programs: Path | None = None
) -> dict[str, str]:
    """What depends on the engine's own node: its cache folders and its compilers. To be set before vLLM
    starts; what ``environment`` has already (``engine.env`` among it) stays.

    ``programs``: the folder of the virtual environment's programs, by default that of this Python. vLLM
    compiles some kernels as it starts, and looks for ``ninja`` on the PATH.
    """
    folder = str(programs or Path(sys.executable).parent)
    path = environment.get("PATH", "").split(os.pathsep)
    found = {name: str(store.cache_dir / part) for name, part in CACHES.items()}
    if model.managed_engine.accelerator == "gpu":
        # FlashInfer's sampler is compiled at the first start, which fails without these two.
        if not _compiles_kernels(environment, [folder, *path]):
            found["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
        found[COPIED] = ",".join(["PATH", *CACHES])
    unset = {name: value for name, value in found.items() if name not in environment}
    return unset | {"PATH": os.pathsep.join([folder, *(each for each in path if each != folder)])}


def _compiles_kernels(environment: Mapping[str, str], path: list[str]) -> bool:
    """Whether CUDA's compiler and ninja are found, as FlashInfer looks for them."""
    cuda = environment.get("CUDA_HOME") or environment.get("CUDA_PATH") or "/usr/local/cuda"
    places = os.pathsep.join([*path, str(Path(cuda) / "bin")])
    return which("nvcc", path=places) is not None and which("ninja", path=places) is not None
