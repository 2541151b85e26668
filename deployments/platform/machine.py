"""The machine that this process runs on, as a device of a plan."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path

from serve_app.planning import Device, find_device

GIB = 2**30
CORE_TFLOPS = 0.08
"""One AVX2 core at 2.5 GHz: two FMA units of 8 float32 lanes."""

CPU_INFO = Path("/proc/cpuinfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Holds a number of bytes, or ``max``. Exists only in a container (control groups, version 2)."""


def this_machine() -> Device | None:
    """The table's CPU with the memory and the cores of this machine, or of this container."""
    cpu = find_device("cpu")
    tflops = CORE_TFLOPS * len(os.sched_getaffinity(0))
    if cpu is None:
        return None
    flags = _cpu_flags()
    return replace(
        cpu,
        memory_gib=memory_bytes() / GIB,
        tflops=tflops,
        has_vnni=None if flags is None else "vnni" in flags,
        has_bf16_units=None if flags is None else "avx512_bf16" in flags or "amx_bf16" in flags,
    )


def _cpu_flags() -> str | None:
    """The CPU's x86 flags; ``None`` if the kernel lists none."""
    found = re.search(r"^flags\s*:(.*)$", CPU_INFO.read_text(errors="replace"), re.MULTILINE)
    return None if found is None else found[1]


def memory_bytes() -> int:
    """The memory of this machine, or of this container."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        return min(physical, int(CONTAINER_LIMIT.read_text(encoding="ascii")))
    return physical
