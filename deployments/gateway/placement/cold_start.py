"""How a gateway wakes a model that is scaled to zero."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ray.serve.handle import DeploymentHandle

AGAIN_AFTER_S = 1.0
"""After a call: if a replica came, the gateway hears of it with its next poll; if the start failed, another
one is asked for."""

logger = logging.getLogger("ray.serve")


class ColdStart:
    """One model's. Serve starts a replica for a call that finds none, and the call waits until it is there.

    The call is small and answers nobody: requests wait in the gateway's line, where each keeps its deadline
    and its priority, and go to the replica over HTTP like any other. It outlives the client that caused it:
    a start that was called off half-way would help nobody.
    """

    def __init__(self, model: str, engine: DeploymentHandle[Any]) -> None:
        self._model = model
        self._engine = engine
        self._call: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """There is no replica, and somebody needs one. May be called again and again."""
        if self._call is None or self._call.done():
            self._call = asyncio.get_running_loop().create_task(self._wait_for_one())

    def stop(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _wait_for_one(self) -> None:
        logger.info("%s has no replica: one is asked for", self._model)
        try:
            await self._engine.describe.remote()
        except Exception as error:  # a start that failed, in Serve's words; whoever still waits asks again
            logger.warning("no replica of %s came: %s", self._model, type(error).__name__)
        await asyncio.sleep(AGAIN_AFTER_S)
