"""Traces of one gateway: what records its spans, and what tells other deployments which are kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from deployments.gateway.monitoring.kept_news import KeptNews
from deployments.platform.telemetry import tracer_from_environment
from serve_app.settings import Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


class Tracing:
    """``tracer`` is ``None`` where the environment asks for no traces. ``close`` sends what is left."""

    def __init__(self, settings: Settings, deployments: Iterable[DeploymentHandle[Any] | None]) -> None:
        self._news = KeptNews(deployments)
        self.tracer = tracer_from_environment(os.environ, settings.traces, self._news)

    async def close(self) -> None:
        await self._news.close()
        if self.tracer is not None:
            self.tracer.flush()
            await asyncio.to_thread(self.tracer.shut_down)
