"""How an engine on CPUs runs: in how many processes, with which CPUs.

vLLM leaves one CPU to its scheduler's process, which waits by polling (``VLLM_CPU_OMP_THREADS_BIND=auto``,
``vllm.utils.ompmultiprocessing``). An engine of one rank has no such process here (see
``one_process_engine.py``), and on a machine with few CPUs the one that would be kept is a large part of all.
On two, SmolLM2-135M's TTFT is 0.6 × and its TPOT 0.8 × with both (docs/performance.md).
"""

from __future__ import annotations

import os
from collections.abc import Collection

from serve_app.settings import ModelSettings

BIND = "VLLM_CPU_OMP_THREADS_BIND"
FEW_CPUS = 4
"""Up to so many all are bound: beyond, one of them is less than a fifth."""


def runs_in_one_process(model: ModelSettings) -> bool:
    """Whether the engine is one rank on CPUs: its scheduler and its worker need no process each."""
    engine = model.managed_engine
    return engine.accelerator == "cpu" and engine.num_devices * engine.data_parallel_size == 1


def bound_cpus(model: ModelSettings, allowed: Collection[int]) -> str | None:
    """vLLM's list of CPUs for an engine's threads, or ``None`` where vLLM shall choose: several ranks (each
    has CPUs of its own) or replicas (their threads would wait for each other), many CPUs, or a choice of the
    operator's (``engine.env``)."""
    engine = model.managed_engine
    if model.replicas != 1 or engine.disaggregation is not None or not runs_in_one_process(model):
        return None
    if BIND in engine.env or not 1 < len(allowed) <= FEW_CPUS:
        return None
    return ",".join(str(cpu) for cpu in sorted(allowed))


def bind_threads(model: ModelSettings) -> None:
    """In the engine's replica, before vLLM starts its processes: they inherit the environment."""
    cpus = bound_cpus(model, os.sched_getaffinity(0))
    if cpus is not None:
        os.environ[BIND] = cpus
