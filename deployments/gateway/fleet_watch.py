"""Keeps the fleet table current: asks every engine for its load a few times a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from ray.serve.handle import DeploymentHandle

from deployments.gateway.upstream import UpstreamPool
from deployments.serve_platform import ask_every_replica
from serve_app.fleet import EngineReport, FleetTable

POLL_TIMEOUT_S = 1.0
FORGET_AFTER_S = 5.0
"""How long a member is believed that does not answer (it hangs, or the controller restarts)."""

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
        self._touching: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._watch(model, handle)) for model, handle in handles.items()]

    def stop(self) -> None:
        for task in [*self._loops, *self._touching]:
            task.cancel()

    async def _watch(self, model: str, handle: DeploymentHandle[Any]) -> None:
        answered_at = time.monotonic()
        while True:
            try:
                reports, silent = await ask_every_replica(handle, "describe", POLL_TIMEOUT_S)
                answered_at = time.monotonic()
                self._learn(model, reports, silent, answered_at)
            except Exception as error:  # the loop must outlive whatever a poll meets
                logger.warning("fleet poll of %s failed: %s", model, type(error).__name__)
                if time.monotonic() - answered_at > FORGET_AFTER_S:
                    self._fleet.update(model, [], time.monotonic())
            await asyncio.sleep(self._period_s)

    def _learn(self, model: str, reports: list[EngineReport], silent: int, now: float) -> None:
        """Who does not report is gone; but while some replica is silent, it may be one of those."""
        if silent:
            logger.warning("%d replicas of %s did not say how they are", silent, model)
        keep_since = now - FORGET_AFTER_S if silent else now
        for member in self._fleet.update(model, reports, now, keep_since=keep_since):
            # Connect ahead of the first request, beside the poll: a new member may hang.
            task = asyncio.get_running_loop().create_task(self._upstream.touch(member))
            self._touching.add(task)
            task.add_done_callback(self._touching.discard)
