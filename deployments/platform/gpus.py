"""The NVIDIA GPUs of this machine, as their driver reports them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from serve_app.machine import Gpu

QUERY_S = 30.0
MIB, GIB = 1 << 20, 1 << 30
FIRST_DEVICE = Path("/dev/nvidia0")


def find_gpus() -> tuple[Gpu, ...]:
    """Without nvidia-smi, or with one that finds no device, there is none."""
    return read_gpus(query("name,driver_version,compute_cap,memory.total"))


def read_gpus(rows: Sequence[Sequence[str]]) -> tuple[Gpu, ...]:
    """From nvidia-smi's name, driver, compute capability and MiB of each."""
    return tuple(
        Gpu(name, driver, float(capability), float(mib) * MIB / GIB) for name, driver, capability, mib in rows
    )


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
