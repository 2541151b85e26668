"""How a gateway starts a model that is scaled to zero."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

AGAIN_AFTER_S = 1.0
"""Between two calls: a replica that has started appears in the next poll; after a failed start another call
is made."""

logger = logging.getLogger("ray.serve")


class ColdStart:
    """Starts one model. Serve starts a replica for a call that finds none; the call waits for that.

    No request depends on the result of that call: requests wait in the gateway's queue, where each keeps its
    deadline and priority, and go to the replica over HTTP like any other. The call outlives the client that
    caused it, because a start that is cancelled half-way helps no client.
    """

    def __init__(self, model: str, engine: DeploymentHandle[Any]) -> None:
        self._model = model
        self._engine = engine
        self._call: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Ask for a replica. May be called repeatedly; there is one call at a time."""
        if self._call is None or self._call.done():
            self._call = asyncio.get_running_loop().create_task(self._wait_for_one())

    def stop(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _wait_for_one(self) -> None:
        logger.info("%s has no replica: one is requested", self._model)
        try:
            await self._engine.describe.remote()
        except Exception as error:  # the start failed; requests that still wait ask again
            logger.warning("no replica of %s started: %s", self._model, type(error).__name__)
        await asyncio.sleep(AGAIN_AFTER_S)
