"""A gateway's side of a part that alone owns a file: its calls, repeated until it answers or time is over."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from deployments.platform.serve import cause_of
from deployments.wire.direct_calls import DirectCallFailed, DirectClient
from serve_app.errors import OwnerUnavailable
from serve_app.wire.calls import Interface

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

TRY_S = 2.5
"""One try: an owner that hangs is asked again, as its successor may answer. All calls may be repeated. It is
longer than the owner itself waits for a locked file."""

PAUSE_S = 0.05

logger = logging.getLogger("ray.serve")


class OwnerClient(ABC):
    """Made inside a running event loop; ``close`` ends it. Each method of ``interface`` is called by
    name. ``name``: of the owner, for the log; ``failure``: the owner's own error."""

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        interface: Interface,
        patience_s: float,
        *,
        name: str,
        failure: type[Exception],
    ) -> None:
        self._direct = DirectClient(handle, interface)
        self._patience_s = patience_s
        self._name = name
        self._failure = failure

    async def call(self, method: str, *args: Any) -> Any:
        """Raises: OwnerUnavailable: the owner failed, or did not answer in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while True:
            try:
                return await self.call_once(method, *args, timeout_s=min(TRY_S, until - loop.time()))
            except OwnerUnavailable as error:
                if error.is_final or loop.time() + PAUSE_S >= until:
                    logger.warning("the owner of the %s: %s: %s", self._name, method, error.reason)
                    raise
                await asyncio.sleep(PAUSE_S)

    async def call_once(self, method: str, *args: Any, timeout_s: float = TRY_S) -> Any:
        """Raises: OwnerUnavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._direct.call(method, *args)
        except Exception as error:
            cause = cause_of(error)
            failed = isinstance(error, DirectCallFailed) or isinstance(cause, self._failure)
            raise self._unavailable(cause, failed=failed) from error

    @abstractmethod
    def _unavailable(self, cause: BaseException, *, failed: bool) -> OwnerUnavailable:
        """The client's error, without the path of the file. ``failed``: the owner itself refused."""

    async def close(self) -> None:
        await self._direct.close()


def is_full(cause: BaseException) -> bool:
    """The owner's disk has no room."""
    text = str(cause).lower()
    return "full" in text or "disk are free" in text
