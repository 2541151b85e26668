"""The status that Serve reports of the engines' deployments: why a model has no replica that serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deployments.platform.cluster import room_problems
from deployments.platform.scaling_record import recorded_changes
from deployments.platform.serve import call_errors, deployment_statuses
from serve_app.autoscaling.changes import ScalingChange
from serve_app.engines.start_failure import gist
from serve_app.settings import Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

TIMEOUT_S = 2.0
READ_EVERY_S = 1.0
"""Clients that wait for readiness ask several times a second; Serve's controller is asked less often."""

FAILED = frozenset({"deploy_failed", "unhealthy"})


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """``status`` is Serve's: ``updating``, ``healthy``, ``unhealthy``, ``deploy_failed``, …; ``message`` is
    one line, empty if there is no problem. ``changes``: why its fleet was scaled, the oldest first."""

    status: str
    message: str
    changes: Sequence[ScalingChange] = ()

    @property
    def has_failed(self) -> bool:
        return self.status in FAILED


class EngineStatuses:
    """The status of each model's engines; empty without managed engines, and while Serve's controller does
    not answer."""

    def __init__(self, engines: Mapping[str, DeploymentHandle[Any]], settings: Settings) -> None:
        self._engines = dict(engines)
        self._settings = settings
        self._read: dict[str, EngineStatus] = {}
        self._read_at = -READ_EVERY_S

    async def read(self) -> Mapping[str, EngineStatus]:
        if self._engines and time.monotonic() - self._read_at >= READ_EVERY_S:
            self._read_at = time.monotonic()
            try:
                self._read = await asyncio.wait_for(asyncio.to_thread(self._ask), TIMEOUT_S)
            except call_errors():
                self._read = {}
        return self._read

    def _ask(self) -> dict[str, EngineStatus]:
        known = deployment_statuses()
        if not known:
            return {}
        found: dict[str, EngineStatus] = {}
        for model, handle in self._engines.items():
            deployment = known.get((handle.app_name, handle.deployment_name))
            if deployment:
                found[model] = EngineStatus(
                    deployment.status.value.lower(),
                    gist(deployment.message),
                    recorded_changes(handle.app_name, handle.deployment_name),
                )
        return self._with_room(found)

    def _with_room(self, found: dict[str, EngineStatus]) -> dict[str, EngineStatus]:
        """Replicas that wait for resources: name the setting that asks for too many."""
        if all(status.status != "updating" for status in found.values()):
            return found
        problems = room_problems(self._settings)
        for index, model in enumerate(self._settings.models):
            mine = [problem for problem in problems if problem.startswith(f"models[{index}].")]
            if mine and model.id in found:
                found[model.id] = replace(found[model.id], message=mine[0])
        return found
