"""How an engine on CPUs runs: in how many processes, with which CPUs.

vLLM leaves one CPU to its scheduler's process, which waits by polling (``VLLM_CPU_OMP_THREADS_BIND=auto``,
``vllm.utils.ompmultiprocessing``). An engine of one rank has no such process here (see
``one_process_engine.py``), and on a machine with few CPUs the one that would be kept is a large part of all.
On two, SmolLM2-135M's TTFT is 0.6 × and its TPOT 0.8 × with both (docs/benchmarks.md).

vLLM also takes the machine for its own: replicas that share one would all bind their threads to the same
CPUs, and wait for each other. So replicas of one model take CPUs that no other has taken.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from deployments.engine.cpu.lease import CpuLease, by_core, lease_cpus, one_of_each_core
from serve_app.settings import ModelSettings

logger = logging.getLogger("ray.serve")

BIND = "VLLM_CPU_OMP_THREADS_BIND"
FEW_CPUS = 4
"""Up to so many all are bound: beyond, one of them is less than a fifth."""

WAIT_S, LOOK_S = 15.0, 0.25
"""Serve starts a replica in the place of one that still ends: a moment later its CPUs are free."""


def runs_in_one_process(model: ModelSettings) -> bool:
    """Whether the engine is one rank on CPUs: its scheduler and its worker need no process each."""
    engine = model.managed_engine
    return engine.accelerator == "cpu" and engine.num_devices * engine.data_parallel_size == 1


def bound_cpus(model: ModelSettings, allowed: Collection[int]) -> tuple[int, ...]:
    """The CPUs of an engine that is alone: all, if they are few. None: vLLM shall choose."""
    if not _is_ours_to_bind(model) or _may_be_several(model) or not 1 < len(allowed) <= FEW_CPUS:
        return ()
    return tuple(sorted(allowed))


def leased_cpus(model: ModelSettings, machine: int) -> int:
    """How many of a machine's CPUs a replica that is not alone takes for itself: those that Ray counts for
    it, or its part if all replicas were here, whichever is more. 0: vLLM shall choose."""
    if not _is_ours_to_bind(model) or not _may_be_several(model):
        return 0
    engine, (_, most) = model.managed_engine, model.replica_bounds
    return max(1, int(engine.num_cpus + engine.num_devices), machine // most)


def bind_threads(model: ModelSettings, folder: Path | None = None, wait_s: float = WAIT_S) -> CpuLease | None:
    """In the engine's replica, before vLLM starts its processes: they inherit the environment. May wait, for
    CPUs of a replica that ends. What is returned must live as long as the engine. ``folder``: where leases
    are kept."""
    allowed = os.sched_getaffinity(0)
    lease = _lease(model, allowed, folder, wait_s)
    cpus = bound_cpus(model, allowed) if lease is None else one_of_each_core(lease.cpus)
    if cpus:
        os.environ[BIND] = ",".join(map(str, cpus))
    return lease


def _lease(
    model: ModelSettings, allowed: Collection[int], folder: Path | None, wait_s: float
) -> CpuLease | None:
    wanted = leased_cpus(model, len(allowed))
    if not wanted:
        return None
    try:
        lease = _as_many_as_wanted(by_core(allowed), wanted, folder, wait_s)
    except OSError as error:
        logger.warning("engine of %r: no CPUs of its own: %s", model.id, error)
        return None
    if len(lease.cpus) < wanted:
        logger.warning(
            "engine of %r: %d CPUs wanted, %d of %d were free: others of this machine slow it down",
            model.id,
            wanted,
            len(lease.cpus),
            len(allowed),
        )
    return lease


def _as_many_as_wanted(allowed: Sequence[int], wanted: int, folder: Path | None, wait_s: float) -> CpuLease:
    deadline = time.monotonic() + wait_s
    while True:
        lease = lease_cpus(allowed, wanted, folder)
        if len(lease.cpus) == min(wanted, len(allowed)) or time.monotonic() >= deadline:
            return lease
        lease.give_back()
        time.sleep(LOOK_S)  # a lock of another process sends no event


def _is_ours_to_bind(model: ModelSettings) -> bool:
    """Not several ranks (each has CPUs of its own), and not a choice of the operator's (``engine.env``)."""
    engine = model.managed_engine
    return runs_in_one_process(model) and engine.disaggregation is None and BIND not in engine.env


def _may_be_several(model: ModelSettings) -> bool:
    """Replicas that may share a machine."""
    return model.replica_bounds[1] > 1
