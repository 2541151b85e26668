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
    """This machine's GPUs; none without nvidia-smi, or with one that finds no device."""
    return read_gpus(query("name,driver_version,compute_cap,memory.total"))


def read_gpus(rows: Sequence[Sequence[str]]) -> tuple[Gpu, ...]:
    """GPUs from nvidia-smi's rows: name, driver, compute capability and MiB of each."""
    return tuple(gpu for row in rows if (gpu := _gpu(row)) is not None)


def _gpu(row: Sequence[str]) -> Gpu | None:
    """``None``: the driver does not say all of it. Of a GPU that shares the host's memory it says `[N/A]`."""
    try:
        name, driver, capability, mib = row
        return Gpu(name, driver, float(capability), float(mib) * MIB / GIB)
    except ValueError:
        return None


def query(columns: str) -> list[list[str]]:
    """What nvidia-smi says of each GPU; nothing where it does not run."""
    command = ["nvidia-smi", f"--query-gpu={columns}", "--format=csv,noheader,nounits"]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=QUERY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if ran.returncode != 0:
        return []
    return [[cell.strip() for cell in line.split(",")] for line in ran.stdout.splitlines() if line.strip()]
