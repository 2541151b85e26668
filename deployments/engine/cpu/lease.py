"""CPUs of a machine that one process takes for itself: Ray counts CPUs, and binds nobody to any.

A CPU is taken by a lock on the file named after it. The kernel gives it back when the process ends, however
that happens; nobody has to clean up.
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
    """Of this user on this machine, for whatever cluster his processes belong to."""
    return Path(gettempdir()) / f"promptly-cpus-{os.getuid()}"


class CpuLease:
    """Holds ``cpus`` until it is given back or the process ends."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}  # descriptors of the locks

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(self._held))

    def take(self, cpu: int, folder: Path) -> None:
        """If nobody has it."""
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
    """At most ``count`` of the ``allowed`` CPUs that nobody else has taken, in their order; fewer, or none,
    if there are not so many.

    Raises:
        OSError: the folder cannot be written to, or is somebody else's.
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
    """In the order in which to take them: all hardware threads of a core before the next core's, so that
    nobody shares one if he takes several."""
    return sorted(allowed, key=lambda cpu: (_siblings(cpu, topology)[0], cpu))


def one_of_each_core(cpus: Collection[int], topology: Path = TOPOLOGY) -> tuple[int, ...]:
    """The first of each core's. A second thread in the same core's units only waits for the first, as
    vLLM has it too."""
    first: dict[int, int] = {}
    for cpu in sorted(cpus):
        first.setdefault(_siblings(cpu, topology)[0], cpu)
    return tuple(first.values())


def _siblings(cpu: int, topology: Path) -> list[int]:
    """The hardware threads of its core; itself alone where the kernel does not say."""
    with contextlib.suppress(OSError):
        text = (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(encoding="ascii")
        return sorted(_listed(text)) or [cpu]
    return [cpu]


def _listed(text: str) -> Iterator[int]:
    """The numbers of a list such as ``0,4`` or ``0-1``."""
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        yield from range(int(first), int(last or first) + 1)
