"""Fresh answers for stale entries, fetched in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from deployments.gateway.request.answer import Answer
from serve_app.errors import PromptlyError

logger = logging.getLogger("ray.serve")


class Refreshes:
    """Refreshes under way, at most one for each entry. ``stop`` ends them all."""

    def __init__(self) -> None:
        self._tasks: dict[UUID, asyncio.Task[None]] = {}

    def __contains__(self, entry_id: UUID) -> bool:
        return entry_id in self._tasks

    def start(self, entry_id: UUID, answer: Answer, limit_s: float, ended: Callable[[], None] | None) -> None:
        """Read an answer to its end, so that it is stored; it is cancelled after ``limit_s`` seconds.
        ``ended`` is called in any case."""
        task = asyncio.get_running_loop().create_task(_drain(answer, limit_s))
        self._tasks[entry_id] = task

        def over(_: asyncio.Task[None]) -> None:
            self._tasks.pop(entry_id, None)
            if ended is not None:
                ended()

        task.add_done_callback(over)

    def stop(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()


async def _drain(answer: Answer, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            opened = await answer.begin()
            while await opened.read():
                pass
    except (PromptlyError, TimeoutError) as error:
        logger.info("a stale answer was not refreshed: %s", type(error).__name__)
    finally:
        answer.close()
