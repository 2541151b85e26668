"""A gateway's part in scaling engines: it starts a model that has no replica, and reports its traffic to the
engines, which pass it on to the autoscaling policy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from deployments.gateway.placement.cold_start import ColdStart
from deployments.gateway.placement.queue import Admission
from serve_app.autoscaling import Demand
from serve_app.settings import AutoscalingSettings, Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

REPORT_PERIOD_S = 1.0
"""Time between two reports, the same as that of engines to Serve (``deployments.engine.autoscaling``)."""

REPORT_TIMEOUT_S = 1.0

logger = logging.getLogger("ray.serve")


class Scaling:
    """``demands``: of the models that scale, by model. ``cold_starts``: of those that scale to zero."""

    def __init__(self, settings: Settings, engines: Mapping[str, DeploymentHandle[Any]]) -> None:
        scaled = {
            model.id: model.replicas
            for model in settings.models
            if isinstance(model.replicas, AutoscalingSettings) and model.id in engines
        }
        gateway = token_hex(4)
        self._engines = engines
        self._tasks: list[asyncio.Task[None]] = []
        self.demands = {model: Demand(gateway, rules.ttft_objective_s) for model, rules in scaled.items()}
        self.cold_starts = {
            model: ColdStart(model, engines[model]) for model, rules in scaled.items() if rules.min == 0
        }

    def start(self, admissions: Mapping[str, Admission]) -> None:
        """Report from now on; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._report(model, admissions[model])) for model in self.demands]

    async def stop(self) -> None:
        for cold_start in self.cold_starts.values():
            cold_start.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report(self, model: str, admission: Admission) -> None:
        demand, handle = self.demands[model], self._engines[model]
        while True:
            await asyncio.sleep(REPORT_PERIOD_S)
            load = demand.report(admission.waiting, admission.waiting_tokens, time.monotonic())
            try:
                async with asyncio.timeout(REPORT_TIMEOUT_S):
                    await handle.broadcast("record_traffic", load).results_async()
            except Exception as error:  # no replica, or one hangs: the next report repeats it
                logger.debug("load of %s not reported: %s", model, type(error).__name__)
