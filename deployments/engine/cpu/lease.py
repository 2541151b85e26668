"""Exclusive leases of CPUs: Ray counts CPUs, but does not bind processes to them.

A CPU is leased by a lock on the file named after it. The kernel releases the lock when the process ends, so
even a crash needs no clean-up.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from tempfile import gettempdir

TOPOLOGY = Path("/sys/devices/system/cpu")


def lease_folder() -> Path:
    """The folder of this user's leases on this machine, shared by all clusters."""
    return Path(gettempdir()) / f"promptly-cpus-{os.getuid()}"


class CpuLease:
    """Holds ``cpus`` until ``give_back`` or the end of the process."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}  # file descriptors of the locks, by CPU

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(self._held))

    def take(self, cpu: int, folder: Path) -> None:
        """Lease this CPU if it is free."""
        descriptor = os.open(folder / str(cpu), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            self._held[cpu] = descriptor

    def give_back(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held = {}


def lease_cpus(allowed: Iterable[int], count: int, folder: Path | None = None) -> CpuLease:
    """Lease the first ``count`` free CPUs of ``allowed``; fewer, or none, if not enough are free.

    Raises:
        OSError: the folder is not writable or belongs to another user.
    """
    folder = lease_folder() if folder is None else folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    lease = CpuLease()
    try:
        for cpu in allowed:
            if len(lease.cpus) == count:
                break
            lease.take(cpu, folder)
    except OSError:
        lease.give_back()
        raise
    return lease


def by_core(allowed: Collection[int], topology: Path = TOPOLOGY) -> list[int]:
    """The CPUs in the order to lease them: all hardware threads of a core before the next core's, so that a
    process that leases several shares as few cores as possible."""
    return sorted(allowed, key=lambda cpu: (_siblings(cpu, topology)[0], cpu))


def one_of_each_core(cpus: Collection[int], topology: Path = TOPOLOGY) -> tuple[int, ...]:
    """The first hardware thread of each core. A second thread on the same core only waits for the first one's
    execution units; vLLM does the same."""
    first: dict[int, int] = {}
    for cpu in sorted(cpus):
        first.setdefault(_siblings(cpu, topology)[0], cpu)
    return tuple(first.values())


def _siblings(cpu: int, topology: Path) -> list[int]:
    """The hardware threads of the CPU's core; only itself if the kernel does not say."""
    with contextlib.suppress(OSError):
        text = (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(encoding="ascii")
        return sorted(_listed(text)) or [cpu]
    return [cpu]


def _listed(text: str) -> Iterator[int]:
    """The numbers in a list such as ``0,4`` or ``0-1``."""
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        yield from range(int(first), int(last or first) + 1)
