"""The CPU time of processes, from ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from deployments.launcher.processes import descendants, process_table


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """The user and system time of each process and its descendants so far.

    Ended children count once their parent has waited for them. Resolution: 10 ms.
    """
    table = process_table()
    return {pid: sum(own_cpu_seconds(member) for member in (pid, *descendants(pid, table))) for pid in pids}


def own_cpu_seconds(pid: int) -> float:
    """The CPU time of one process without its descendants; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    after_name = stat.rpartition(")")[2].split()
    return sum(map(int, after_name[11:15])) / os.sysconf("SC_CLK_TCK")
