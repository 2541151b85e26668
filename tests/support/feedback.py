"""The owner of the feedback as a plain object, and gateways that share one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deployments.feedback.deployment import Feedback
from serve_app.feedback.values import Judged
from serve_app.settings import FeedbackSettings
from support.handles import LocalHandle


class PlainFeedback(Feedback):
    """Serve awaits the destructor; the interpreter would not."""

    def __del__(self) -> None:  # type: ignore[override]
        """The test that opens it calls ``close``."""


async def open_feedback(folder: Path, **settings: Any) -> Feedback:
    """Made as Serve makes it."""
    made = PlainFeedback.__new__(PlainFeedback)
    values = {"path": str(folder), "min_free_disk_bytes": 0, **settings}
    await made.__init__(FeedbackSettings(**values))  # type: ignore[misc]
    return made


@asynccontextmanager
async def feedback_handle(folder: Path, **settings: Any) -> AsyncIterator[LocalHandle]:
    """What stands for the deployment's handle."""
    handle = LocalHandle(await open_feedback(folder, **settings))
    try:
        yield handle
    finally:
        await handle.target.close()


def a_request(number: int = 0, tenant: str = "acme", **changed: Any) -> Judged:
    given: dict[str, Any] = {
        "tenant": tenant,
        "request_id": f"r{number}",
        "at": 1000.0 + number,
        "endpoint": "chat",
        "model": "sim",
    }
    return Judged(**{**given, **changed})
