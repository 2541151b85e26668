"""Tells the deployments which requests' traces are kept after all: they send the spans that they hold."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from deployments.platform.serve import ask_every_replica

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

METHOD = "send_held"

TOLD_AFTER_S = 0.5
"""Requests that are kept meanwhile are sent in one call."""

TELL_TIMEOUT_S = 5.0
"""On a busy machine Serve may take a second."""

CLOSE_TIMEOUT_S = 1.0

MOST_WAITING = 1024
"""Requests; the spans of older ones are not sent."""

logger = logging.getLogger("ray.serve")


class KeptNews:
    """Call it with a request's key (``span_key``). Nothing waits for it: a deployment that does not answer
    loses its spans of the trace. Used inside a running event loop."""

    def __init__(self, deployments: Iterable[DeploymentHandle[Any] | None]) -> None:
        self._deployments = [each for each in deployments if each is not None]
        self._waiting: deque[str] = deque(maxlen=MOST_WAITING)
        self._telling: asyncio.Task[None] | None = None

    def __call__(self, key: str) -> None:
        if not self._deployments:
            return
        self._waiting.append(key)
        if self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.create_task(self._tell(), context=Context())  # of no request

    async def close(self) -> None:
        """Tell what waits."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
            self._telling = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._tell_all()

    async def _tell(self) -> None:
        while self._waiting:
            await asyncio.sleep(TOLD_AFTER_S)
            await self._tell_all()
        self._telling = None

    async def _tell_all(self) -> None:
        keys = tuple(self._waiting)
        self._waiting.clear()
        if keys:
            await asyncio.gather(*(self._tell_one(each, keys) for each in self._deployments))

    async def _tell_one(self, deployment: DeploymentHandle[Any], keys: tuple[str, ...]) -> None:
        try:
            await ask_every_replica(deployment, METHOD, TELL_TIMEOUT_S, keys)
        except Exception as error:  # it has no replica now, or Serve's controller restarts
            logger.debug("a deployment did not learn which traces are kept: %r", error)
