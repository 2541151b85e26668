"""What an engine on a GPU needs of the machine around it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage, which

from benchmarks.peers.endpoint import ROOT
from benchmarks.table import at_least

from deployments.engine.checks import SHARED_MEMORY
from gpu_check.contract import Bench, Finding, failed, finding, judged, left_out
from gpu_check.engines import settings, store, variables
from gpu_check.machine import GIB
from gpu_check.runner import NO_GPU

LEAST_SHARED_GIB, LEAST_DISK_GIB = 0.25, 5.0
"""Room for an engine's own queues (a container's default of 64 MiB is too little), and for compiled kernels
and logs."""

SETUP_S = 30.0


def environment(bench: Bench) -> Iterator[Finding]:
    yield _set_up(bench)
    yield _sampler(bench)
    yield _room("shared memory", SHARED_MEMORY, LEAST_SHARED_GIB)
    cache = store().cache_dir
    cache.mkdir(parents=True, exist_ok=True)
    yield _room("disk of the cache folder", cache, LEAST_DISK_GIB)
    present = Path(bench.model).is_dir()
    yield finding("model", reason=f"{bench.model}{'' if present else ' (of the hub)'}")


def _set_up(bench: Bench) -> Finding:
    """The set-up's own check: driver, g++, Python's headers."""
    subject = "driver, g++, Python's headers"
    script = ROOT / "scripts" / "setup_env.sh"
    code = f"source {script}; check_gpu {sys.executable}"
    ran = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, timeout=SETUP_S, check=False, cwd=ROOT
    )
    if ran.returncode != 0:
        return failed(subject, ran.stderr.strip())
    return finding(subject, reason="" if bench.on_gpu else "no driver was looked at: there is no GPU")


def _sampler(bench: Bench) -> Finding:
    """Either both compilers are found, or Promptly switches FlashInfer's sampler off."""
    subject = "FlashInfer's sampler"
    if not bench.on_gpu:
        return left_out(subject, NO_GPU)
    env = variables(bench, settings(bench))
    path = env.get("PATH", os.environ.get("PATH", ""))
    found = {name: which(name, path=path) or "not found" for name in ("nvcc", "ninja")}
    is_off = env.get("VLLM_USE_FLASHINFER_SAMPLER") == "0"
    said = ", ".join(f"{name} {place}" for name, place in found.items())
    return finding(subject, reason=f"{'off: vLLM samples by itself' if is_off else 'on'} ({said})")


def _room(subject: str, folder: Path, least_gib: float) -> Finding:
    if not folder.is_dir():
        return failed(subject, f"there is no {folder}")
    free = disk_usage(folder).free / GIB
    return finding(subject, judged("free", free, "GiB", at_least(least_gib)), reason=str(folder))
