"""The one thread on which Qdrant Edge's blocking calls run, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from deployments.cache.store.base import StoreError
from deployments.cache.store.disk_floor import DiskFloor

T = TypeVar("T")


class StoreThread:
    """Checks the disk before every call and turns every error into a :class:`StoreError`."""

    def __init__(self, path: Path, disk: DiskFloor) -> None:
        """``path`` is the store's folder, for messages."""
        self._path = path
        self._disk = disk
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache-store")
        self._is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def call(self, work: Callable[[], T], *, adds: bool = False) -> T:
        """Run a call; ``adds``: the call stores something.

        Raises:
            StoreFull: the disk is too full for the call.
            StoreError: the call failed, or the thread is closed.
        """
        if not self._is_open:
            raise StoreError(f"cache store {self._path}: closed")

        def checked() -> T:
            self._disk.require(adds=adds)  # on the store's thread: right before the call
            return work()

        return await self._run(checked)

    async def close(self, work: Callable[[], None]) -> None:
        """Run a last call, however full the disk is, and end the thread.

        Raises:
            StoreError: the call failed.
        """
        self._is_open = False
        try:
            await self._run(work)
        finally:
            self._thread.shutdown(wait=False)

    def abandon(self) -> None:
        """End the thread after the call that runs now."""
        self._is_open = False
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._translated, work)

    def _translated(self, work: Callable[[], T]) -> T:
        """Run a call and turn its errors into ``StoreError``. Qdrant Edge raises bare ``Exception``, and its
        panics derive only from ``BaseException``."""
        try:
            return work()
        except StoreError:
            raise
        except BaseException as error:  # on the store's thread, so never a cancellation or interrupt
            raise StoreError(f"cache store {self._path}: {error}") from error
