"""The disk space that an embedded store leaves free.

Qdrant writes through mapped memory into sparse files. On a full disk such a write raises no error: it causes
a SIGBUS that kills the process, and the next process as soon as that opens the folder. So the store is
not touched when space is short, and every call checks first: ``statvfs`` takes a few microseconds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from deployments.cache.store.base import StoreFull

HARD_SHARE = 0.25
"""Share of the floor below which all calls are refused, because on some file systems reads fill holes,
too."""

RECOVERED_SHARE = 1.1
"""Share of the floor from which on writes are allowed again. Above 1, so that small changes of the free space
do not fill the log."""

MIB = 1 << 20

logger = logging.getLogger("ray.serve")

FreeBytes = Callable[[Path], int]


def free_bytes(path: Path) -> int:
    """Bytes that an unprivileged user may still write. Raises: OSError."""
    there = next(each for each in (path, *path.parents) if each.exists())
    found = os.statvfs(there)
    return found.f_bavail * found.f_frsize


class DiskFloor:
    """A check before every call. It logs once when space gets short, and once when there is enough again."""

    def __init__(self, path: Path, floor_bytes: int, free: FreeBytes = free_bytes) -> None:
        """``floor_bytes``: the space to leave free; 0 turns the check off."""
        self._path = path
        self._floor = floor_bytes
        self._free = free
        self._is_short = False

    def require(self, *, adds: bool) -> None:
        """Check the free space. ``adds``: the call stores something. Other calls (reads, deletions) are
        refused only below ``HARD_SHARE``.

        Raises:
            StoreFull: there is not enough space.
        """
        if not self._floor:
            return
        free = self._free(self._path)
        self._note(free)
        if self._is_short and (adds or free < self._floor * HARD_SHARE):
            raise StoreFull(self.reason)

    @property
    def reason(self) -> str:
        """The error message. It omits the current figure: callers log a message only when it changes."""
        return (
            f"cache store {self._path}: less than {self._floor / MIB:.0f} MiB are free on its disk "
            "(cache.min_free_disk_bytes)"
        )

    def _note(self, free: int) -> None:
        if not self._is_short and free < self._floor:
            self._is_short = True
            logger.error("%s: nothing is stored until there is room", self.reason)
        elif self._is_short and free >= self._floor * RECOVERED_SHARE:
            self._is_short = False
            logger.warning("cache store %s: there is room again, answers are stored", self._path)
