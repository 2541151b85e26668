"""The threads of a store: one writes, because a commit waits for the disk; another reads."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class StoreThreads:
    """After ``close`` both raise RuntimeError."""

    def __init__(self, name: str) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-read")

    async def write(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def close(self, reading: Callable[[], object], writing: Callable[[], object]) -> None:
        """Ends after the calls that run now. Both connections are closed, each in its own thread."""
        await self.read(reading)
        await self.write(writing)
        self._reader.shutdown(wait=False)
        self._writer.shutdown(wait=False)


def refuse_on_full_disk(folder: Path, least_bytes: int, setting: str) -> None:
    """Raises: OSError: fewer bytes are free than ``setting`` says."""
    free = shutil.disk_usage(folder).free
    if free < least_bytes:
        raise OSError(f"{free} bytes of disk are free ({setting}: {least_bytes})")
