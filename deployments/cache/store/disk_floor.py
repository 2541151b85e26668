"""Room that an embedded store leaves free on its disk.

The engine writes through mapped memory, into files with holes. Where the disk is full such a write is no
error: it is SIGBUS, which ends the process, and the next one at the first look into the folder. So the store
is not touched where room is short, and every call asks first: ``statvfs`` takes some microseconds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from deployments.cache.store.base import StoreFull

HARD_SHARE = 0.25
"""Of the floor. Below it nothing is called any more: reading may fill holes, too, on some file systems."""

RECOVERED_SHARE = 1.1
"""Of the floor: room is back. A little more than the floor, so that the log does not tell of every file."""

MIB = 1 << 20

logger = logging.getLogger("ray.serve")

FreeBytes = Callable[[Path], int]


def free_bytes(path: Path) -> int:
    """What an unprivileged user may still write. Raises: OSError."""
    there = next(each for each in (path, *path.parents) if each.exists())
    found = os.statvfs(there)
    return found.f_bavail * found.f_frsize


class DiskFloor:
    """Asked before every call. Says once when room gets short, and once when it is back."""

    def __init__(self, path: Path, floor_bytes: int, free: FreeBytes = free_bytes) -> None:
        """``floor_bytes``: 0 for none."""
        self._path = path
        self._floor = floor_bytes
        self._free = free
        self._is_short = False

    def require(self, *, adds: bool) -> None:
        """``adds``: the call stores something. Others (reads, deletions) may go on for a while.

        Raises:
            StoreFull: there is not enough room.
        """
        if not self._floor:
            return
        free = self._free(self._path)
        self._note(free)
        if self._is_short and (adds or free < self._floor * HARD_SHARE):
            raise StoreFull(self.reason)

    @property
    def reason(self) -> str:
        """Without the number of the moment: it is logged where it differs from the last one."""
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
