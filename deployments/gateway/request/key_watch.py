"""Follows the keys file: a key that is removed stops working within a second, one that is added starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from serve_app.errors import SettingsError
from serve_app.request.auth import KeySources

PERIOD_S = 0.5
"""Between two checks. A check is one `stat`; the file is read when it has changed."""

Signature = tuple[int, int, int]

logger = logging.getLogger("ray.serve")


class KeyWatch:
    """Calls ``changed`` with the new sources. A file that is missing or invalid changes nothing: the known
    keys stay, and the log has one line, which names no key.

    A file system that does not answer stops this loop, not the gateway's: the file is read in a thread.
    ``pause`` waits for some seconds.
    """

    def __init__(
        self,
        sources: KeySources,
        changed: Callable[[KeySources], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sources = sources
        self._changed = changed
        self._pause = pause
        self._seen: Signature | None = None
        self._problem = ""
        self._looking = asyncio.get_running_loop().create_task(self._look_forever())

    async def stop(self) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_forever(self) -> None:
        while True:
            try:
                await self._look()
                self._problem = ""
            except (OSError, SettingsError) as error:
                self._seen = None  # it is read at every check until that succeeds
                self._complain(str(error))
            await self._pause(PERIOD_S)

    async def _look(self) -> None:
        file = self._sources.file
        assert file is not None, "a file is watched"
        signature = await asyncio.to_thread(_signature, file)
        if signature == self._seen:
            return
        sources = await asyncio.to_thread(self._sources.read_again)
        self._seen = signature  # taken before: a write in between is noticed at the next check
        if sources == self._sources:
            return
        self._sources = sources
        logger.info("auth.keys_file has changed: %d keys", len(sources.in_file))
        self._changed(sources)

    def _complain(self, problem: str) -> None:
        """Log each problem once, not at every check."""
        if problem != self._problem:
            logger.error("the keys known so far stay: %s", problem)
        self._problem = problem


def _signature(file: Path) -> Signature:
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
