"""Keeps the fleet table current: asks every engine for its load a few times a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from ray.serve.handle import DeploymentHandle

from deployments.gateway.upstream import UpstreamPool
from serve_app.fleet import EngineReport, FleetTable, Member

POLL_TIMEOUT_S = 2.0
FORGET_AFTER_S = 5.0
"""How long a model's members are believed while polls fail (a replica hangs, the controller restarts)."""

logger = logging.getLogger("ray.serve")


class FleetWatch:
    """One polling loop per model; a slow model does not delay another's."""

    def __init__(
        self,
        handles: Mapping[str, DeploymentHandle[Any]],
        fleet: FleetTable,
        upstream: UpstreamPool,
        period_s: float,
    ) -> None:
        self._fleet = fleet
        self._upstream = upstream
        self._period_s = period_s
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._watch(model, handle)) for model, handle in handles.items()]

    def stop(self) -> None:
        for task in self._loops:
            task.cancel()

    async def _watch(self, model: str, handle: DeploymentHandle[Any]) -> None:
        answered_at = time.monotonic()
        while True:
            try:
                reports = await asyncio.wait_for(_poll(handle), POLL_TIMEOUT_S)
                answered_at = time.monotonic()
                await self._welcome(self._fleet.update(model, reports, answered_at))
            except Exception as error:  # the loop must outlive whatever a poll meets
                logger.warning("fleet poll of %s failed: %s", model, type(error).__name__)
                if time.monotonic() - answered_at > FORGET_AFTER_S:
                    self._fleet.update(model, [], time.monotonic())
            await asyncio.sleep(self._period_s)

    async def _welcome(self, members: tuple[Member, ...]) -> None:
        """Connect to new members, so that no user pays for the first connection."""
        await asyncio.gather(*(self._upstream.touch(member) for member in members))


async def _poll(handle: DeploymentHandle[Any]) -> list[EngineReport]:
    reports: list[EngineReport] = await handle.broadcast("describe").results_async()
    return reports
