"""The Feedback deployment: the calls that gateways make, each with the time of this process's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from deployments.feedback.store.base import FeedbackStore
from deployments.feedback.store.registry import open_store
from deployments.wire.owner import Ownership, StoreOwner
from serve_app.feedback.calls import FEEDBACK
from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery, CaptureReply
from serve_app.feedback.values import FeedbackError, FeedbackPage, FeedbackQuery, Judged, Kept, Said
from serve_app.settings import FeedbackSettings
from serve_app.settings.network import ANY_PORT

OWNS = Ownership(
    name="feedback",
    interface=FEEDBACK,
    failure=FeedbackError,
    sweep_period_s=60.0,
    not_open="feedback is not kept",
    not_swept="old feedback was not removed",
)


class Feedback(StoreOwner[FeedbackStore]):
    """While the file cannot be opened, answers are not judged."""

    async def __init__(self, settings: FeedbackSettings, *, ports: range = ANY_PORT) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__(OWNS, ports)
        self._settings = settings
        await self.begin()

    async def open_store(self) -> FeedbackStore:
        return await asyncio.to_thread(open_store, self._settings)

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
