"""The Feedback deployment: the calls that gateways make, each with the time of this process's clock.

There is one replica, because the file has one owner. It keeps nothing in memory that is not in the file: when
it is killed, Serve starts another, and gateways repeat what was not answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from deployments.feedback.store.base import FeedbackStore
from deployments.feedback.store.registry import open_store
from deployments.platform.serve import node_address
from deployments.platform.telemetry import call_tracer
from deployments.wire.direct_calls import DirectCalls
from serve_app.feedback.calls import FEEDBACK
from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery, CaptureReply
from serve_app.feedback.values import FeedbackError, FeedbackPage, FeedbackQuery, Judged, Kept, Said
from serve_app.settings import FeedbackSettings
from serve_app.settings.network import ANY_PORT
from serve_app.wire.private_address import PrivateAddress

REOPEN_PERIOD_S = 5.0
SWEEP_PERIOD_S = 60.0

logger = logging.getLogger("ray.serve")


class Feedback:
    """If the file cannot be opened, the application keeps running: answers are then not judged. It has many
    methods because Serve calls one class and gateways have that many calls; the store does the work."""

    async def __init__(self, settings: FeedbackSettings, *, ports: range = ANY_PORT) -> None:  # type: ignore[misc]  # Serve awaits it
        self._settings = settings
        self._ports = ports
        self._opened: FeedbackStore | None = None
        self._error = ""
        self._direct: DirectCalls | None = None
        await self._open()
        self._caring = asyncio.get_running_loop().create_task(self._care())

    async def address(self) -> PrivateAddress:
        """The address to which gateways send their calls."""
        if self._direct is None:
            methods = {name: getattr(self, name) for name in FEEDBACK}
            self._direct = DirectCalls(
                FEEDBACK, methods, node_address(), call_tracer("feedback"), ports=self._ports
            )
        return self._direct.address

    async def report(self, requests: Sequence[Judged]) -> None:
        await self.store.report(requests)

    async def say(self, tenant: str, request_id: str, author: str, said: Said) -> Kept:
        return await self.store.say(tenant, request_id, author, said, time.time())

    async def page(self, query: FeedbackQuery) -> FeedbackPage:
        return await self.store.page(query)

    async def capture(self, captures: Sequence[Capture]) -> CaptureReply:
        return await self.store.capture(captures)

    async def captures(self, query: CaptureQuery) -> CapturePage:
        return await self.store.captures(query)

    async def erase(self, tenant: str, only_captures: bool) -> int:
        return await self.store.erase(tenant, only_captures)

    @property
    def store(self) -> FeedbackStore:
        """Raises: FeedbackError: the file could not be opened."""
        if self._opened is None:
            raise FeedbackError(self._error)
        return self._opened

    async def _open(self) -> None:
        """A failure is logged once for each reason."""
        try:
            self._opened = await asyncio.to_thread(open_store, self._settings)
        except FeedbackError as error:
            if str(error) != self._error:
                logger.error("feedback is not kept: %s", error)
            self._error = str(error)

    async def _care(self) -> None:
        """Open the file, if it could not be opened; then remove now and then what is no longer kept."""
        while True:
            if self._opened is None:
                await asyncio.sleep(REOPEN_PERIOD_S)
                await self._open()
                continue
            try:
                await self._opened.sweep(time.time())
            except FeedbackError as error:
                logger.warning("old feedback was not removed: %s", error)
            await asyncio.sleep(SWEEP_PERIOD_S)

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Serve calls this through ``__del__``."""
        self._caring.cancel()
        if self._direct is not None:
            await self._direct.stop()
            self._direct = None
        if self._opened is not None:
            store, self._opened = self._opened, None
            self._error = "closed"
            await store.close()
