"""The variables that an engine's process on CPUs must have before it imports torch, as vLLM sets them.

vLLM derives them in the replica, from an engine's configuration. The fork server imports torch before there
is one (``deployments.engine.vllm.fork_server``), so they are derived here; it is not used where these differ
from vLLM's.

Checked against vLLM 0.29. When it moves, look at the end of ``CpuPlatform.check_and_update_config`` and at
``OMPProcessManager.configure_omp_envs``; a test compares.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from deployments.engine.cpu.threads import BIND

READ_AT_IMPORT = (
    "LD_PRELOAD",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_CPP_DYNAMIC_THREADS",
)
"""What OpenMP, torch and its compiler read only once."""

OPENMP = ("libgomp", "libomp", "libiomp")


def import_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The variables for a process that computes with the CPUs that ``environment`` names. ``None``: vLLM
    chooses them, or an OpenMP is preloaded already."""
    cpus = environment.get(BIND, "")
    preloaded = environment.get("LD_PRELOAD", "")
    if re.fullmatch(r"\d+(,\d+)*", cpus) is None or any(name in preloaded for name in OPENMP):
        return None
    libraries = [*_tcmalloc(preloaded), *filter(None, [preloaded]), *_libgomp()]
    found = {
        "OMP_NUM_THREADS": str(cpus.count(",") + 1),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CPP_DYNAMIC_THREADS": "1",
    }
    if libraries:
        found["LD_PRELOAD"] = ":".join(libraries)
    if any("libgomp" in library for library in libraries):
        return found | {"GOMP_CPU_AFFINITY": cpus.replace(",", " ")}
    return found | {"OMP_PLACES": f"{{{cpus}}}", "OMP_PROC_BIND": "true"}


def _libgomp() -> list[str]:
    """torch's own, if it has one."""
    torch = _folder("torch")
    return _first([torch.parent / "torch.libs", torch / "lib"], "libgomp*.so*")


def _tcmalloc(preloaded: str) -> list[str]:
    """vLLM's own, if it has one and none is preloaded."""
    if "libtcmalloc" in preloaded:
        return []
    libraries = [_folder("vllm") / "libs"]
    return _first(libraries, "libtcmalloc_minimal*.so*") or _first(libraries, "libtcmalloc.so*")


def _first(folders: list[Path], pattern: str) -> list[str]:
    return [str(path) for folder in folders for path in folder.glob(pattern)][:1]


def _folder(package: str) -> Path:
    """Without importing it."""
    found = find_spec(package)
    return Path(os.devnull if found is None or found.origin is None else found.origin).parent
