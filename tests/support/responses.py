"""The store of responses as a plain object, and gateways that share one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deployments.responses.deployment import Responses
from serve_app.settings import ResponsesSettings
from support.handles import LocalHandle


class PlainResponses(Responses):
    """Serve awaits the destructor; the interpreter would not."""

    def __del__(self) -> None:  # type: ignore[override]
        """The test that opens it calls ``close``."""


async def open_responses(folder: Path, **settings: Any) -> Responses:
    """Made as Serve makes it."""
    made = PlainResponses.__new__(PlainResponses)
    await made.__init__(ResponsesSettings(path=str(folder), **settings))  # type: ignore[misc]
    return made


@asynccontextmanager
async def responses_handle(folder: Path, **settings: Any) -> AsyncIterator[LocalHandle]:
    """What stands for the deployment's handle."""
    store = await open_responses(folder, **settings)
    try:
        yield LocalHandle(store)
    finally:
        await store.close()
