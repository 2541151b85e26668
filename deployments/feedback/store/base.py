"""The contract of a store of feedback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery, CaptureReply
from serve_app.feedback.values import FeedbackPage, FeedbackQuery, Judged, Kept, Said


class FeedbackStore(Protocol):
    """``now`` is in Unix seconds, of one clock. A write is in the file when its call returns, also if the
    process is killed then; it may be repeated without another effect. Every method may raise
    FeedbackError."""

    async def report(self, requests: Sequence[Judged]) -> None:
        """These have finished."""
        ...

    async def say(self, tenant: str, request_id: str, author: str, said: Said, now: float) -> Kept:
        """Keep what an author says of one of the tenant's requests; it replaces what they said before. What
        is not the tenant's own is unknown."""
        ...

    async def page(self, query: FeedbackQuery) -> FeedbackPage: ...

    async def capture(self, captures: Sequence[Capture]) -> CaptureReply:
        """Keep all of them, or, where there is no room, none."""
        ...

    async def captures(self, query: CaptureQuery) -> CapturePage: ...

    async def erase(self, tenant: str, only_captures: bool) -> int:
        """Forget everything of a tenant, or what was captured; how many rows that were."""
        ...

    async def sweep(self, now: float) -> None:
        """Remove what is too old, or too much."""
        ...

    async def close(self) -> None: ...
