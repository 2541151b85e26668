"""Decides in how many processes, and on which CPUs, a CPU engine runs.

vLLM reserves one CPU for its scheduler's process, which waits by polling (``VLLM_CPU_OMP_THREADS_BIND=auto``,
``vllm.utils.ompmultiprocessing``). An engine of one rank has no such process here (see
``vllm/one_process.py``), and on a machine with few CPUs the reserved one is a large share. On two CPUs, one
process and both CPUs bound give SmolLM2-135M 0.6 × the TTFT and 0.8 × the TPOT (docs/benchmarks.md).

vLLM also assumes that it owns the machine: replicas that share one would all bind their threads to the same
CPUs and slow each other down. So each replica leases CPUs that no other has leased.
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
"""Up to this number, all CPUs are bound; beyond it, the reserved one is less than a fifth."""

WAIT_S, LOOK_S = 15.0, 0.25
"""How long, and how often, to wait for CPUs: Serve may start a replica while its predecessor is still
ending."""


def runs_in_one_process(model: ModelSettings) -> bool:
    """Whether the engine is a single rank on CPUs, whose scheduler and worker can share one process."""
    engine = model.managed_engine
    return engine.accelerator == "cpu" and engine.num_devices * engine.data_parallel_size == 1


def bound_cpus(model: ModelSettings, allowed: Collection[int]) -> tuple[int, ...]:
    """The CPUs of an engine that does not share its machine: all, if they are few. Empty: vLLM chooses."""
    if not _is_ours_to_bind(model) or _may_be_several(model) or not 1 < len(allowed) <= FEW_CPUS:
        return ()
    return tuple(sorted(allowed))


def leased_cpus(model: ModelSettings, machine: int) -> int:
    """How many of a machine's CPUs a replica leases if it may share the machine: the number that Ray counts
    for it, or its share if all replicas were here, whichever is more. 0: vLLM chooses."""
    if not _is_ours_to_bind(model) or not _may_be_several(model):
        return 0
    engine, (_, most) = model.managed_engine, model.replica_bounds
    return max(1, int(engine.num_cpus + engine.num_devices), machine // most)


def bind_threads(model: ModelSettings, folder: Path | None = None, wait_s: float = WAIT_S) -> CpuLease | None:
    """Choose the CPUs for vLLM's threads. Call it in the engine's replica before vLLM's processes start,
    which inherit the environment. It may wait for CPUs of a replica that is ending. The returned lease must
    live as long as the engine. ``folder``: where leases are kept."""
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
        time.sleep(LOOK_S)  # poll: a released lock sends no event


def _is_ours_to_bind(model: ModelSettings) -> bool:
    """Whether this module chooses the CPUs: not for several ranks (each has its own CPUs), and not if the
    operator chose (``engine.env``)."""
    engine = model.managed_engine
    return runs_in_one_process(model) and engine.disaggregation is None and BIND not in engine.env


def _may_be_several(model: ModelSettings) -> bool:
    """Whether the model may have several replicas, which may share a machine."""
    return model.replica_bounds[1] > 1
