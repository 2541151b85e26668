"""The file of an upload while its request lasts: a short one in memory, a longer one in a temporary file
without a name, which is gone with the process."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import IO, TypeVar

from serve_app.errors import UploadsUnavailable

BLOCK = 1 << 18
"""Bytes that are written and read at once; a file up to this size stays in memory."""

MOST_HELD = 2 * BLOCK
"""What a file holds in memory: a block, and the part of the body that fills it."""

ON_DISK = "/var/tmp"
"""Temporary files that may be large (FHS 5.15); `/tmp` lies in memory on many machines."""

T = TypeVar("T")


class Spool:
    """Bytes that are added once, and then read any number of times."""

    def __init__(self, folder: str | None) -> None:
        """``folder``: of the temporary file; ``None``: where the machine has room for such files."""
        self._block = bytearray()
        self._hash = hashlib.sha256()
        self._file = _File(folder)
        self._in_file = 0

    @property
    def size(self) -> int:
        return self._in_file + len(self._block)

    @property
    def held(self) -> int:
        """Bytes in memory at most, from now to the end."""
        return min(self.size, MOST_HELD)

    def add(self, data: memoryview) -> None:
        self._block += data

    async def settle(self) -> None:
        """Moves what was added to the file, once that is more than a block. Raises: UploadsUnavailable."""
        if len(self._block) > BLOCK:
            await self._move()

    async def digest(self) -> bytes:
        """SHA-256 of all that was added: nothing may be added any more. Raises: UploadsUnavailable."""
        if self._in_file:
            await self._move()
        else:
            self._hash.update(self._block)
        return self._hash.digest()

    async def _move(self) -> None:
        block, self._block = self._block, bytearray()

        def write() -> None:
            self._hash.update(block)
            self._file.write(block)

        await self._file.do(write)
        self._in_file += len(block)

    async def look(self, into: Callable[[Spooled], T]) -> T:
        """What a function finds that looks at a few places. Raises: UploadsUnavailable."""
        view = Spooled(self)
        return await self._file.do(partial(into, view)) if self._in_file else into(view)

    async def read(self, at: int) -> bytes:
        """The next bytes from there on; none at the end. Raises: UploadsUnavailable."""
        return await self._file.do(partial(self.part, at, BLOCK)) if self._in_file else self.part(at, BLOCK)

    def part(self, at: int, size: int) -> bytes:
        return self._file.read(at, size) if self._in_file else bytes(self._block[at : at + size])

    def close(self) -> None:
        """Frees memory and disk, at once or as soon as a thread is done with the file."""
        self._block = bytearray()
        self._file.close()


class _File:
    """The temporary file, which is made when it is first written, and what threads do with it."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._lock = Lock()
        self._is_closed = False

    async def do(self, work: Callable[[], T]) -> T:
        """Runs it in a thread. A cancelled request leaves its thread behind, so the file is closed only under
        the lock: its number may be another file's right after."""
        try:
            return await asyncio.to_thread(self._locked, work)
        except OSError as error:
            raise UploadsUnavailable(error.strerror or f"{error}") from None

    def write(self, block: bytearray) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder or usual_folder(), buffering=0)  # noqa: SIM115
        rest = memoryview(block)
        while rest:  # a disk that is nearly full takes a part
            rest = rest[self._file.write(rest) :]

    def read(self, at: int, size: int) -> bytes:
        assert self._file is not None, "it was written"
        return os.pread(self._file.fileno(), size, at)

    def close(self) -> None:
        self._is_closed = True
        if self._lock.acquire(blocking=False):  # otherwise the thread that has it closes the file
            try:
                if self._file is not None:
                    self._file.close()
            finally:
                self._lock.release()

    def _locked(self, work: Callable[[], T]) -> T:
        try:
            with self._lock:
                if self._is_closed:
                    raise OSError("its request has ended")
                return work()
        finally:
            if self._is_closed:
                self.close()


class Spooled:
    """A spool as :class:`~serve_app.media.audio.Recorded`."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def __len__(self) -> int:
        return self._spool.size

    def __getitem__(self, place: slice, /) -> bytes:
        begin, end, _ = place.indices(len(self))
        return self._spool.part(begin, max(0, end - begin))

    def rfind(self, wanted: bytes, /) -> int:
        end = len(self)
        while end > 0:
            begin = max(0, end - BLOCK)
            found = self[begin : end + len(wanted) - 1].rfind(wanted)
            if found >= 0:
                return begin + found
            end = begin
        return -1


def usual_folder() -> str:
    return ON_DISK if os.access(ON_DISK, os.W_OK | os.X_OK) else tempfile.gettempdir()
