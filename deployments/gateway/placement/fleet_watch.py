"""Keeps the fleet table current: asks every engine for its load a few times a second, and every external
upstream for its health every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deployments.gateway.placement.external import ExternalUpstream
from deployments.platform.serve import ask_every_replica, means_no_replica
from deployments.wire.upstream import UpstreamPool
from serve_app.fleet import EngineReport, EngineState, FleetTable, Health, Probe
from serve_app.openai.continuation import TokenLimits
from serve_app.openai.models import context_tokens

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

POLL_TIMEOUT_S = 1.0
FORGET_AFTER_S = 5.0
"""How long the last report of a member counts that does not answer (it hangs, or the controller restarts)."""

HEALTH_PATH = "/health"

DOUBT_PERIOD_S = 1.0
"""Between health checks of an upstream that did not answer the last one."""

logger = logging.getLogger("ray.serve")

Changed = Callable[[str], None]
"""Called with the model whose members were polled."""


class FleetWatch:
    """One loop per model and per external upstream; a slow one does not delay another."""

    def __init__(
        self,
        *,
        engines: Mapping[str, DeploymentHandle[Any]],
        external: Sequence[ExternalUpstream],
        fleet: FleetTable,
        upstream: UpstreamPool,
        period_s: float,
        changed: Changed,
        may_be_empty: Collection[str] = (),
    ) -> None:
        self._fleet = fleet
        self._upstream = upstream
        self._period_s = period_s
        self._changed = changed
        self._may_be_empty = frozenset(may_be_empty)
        self._stopped = False
        self._said: dict[str, str] = {}
        self._touching: set[asyncio.Task[bytes | None]] = set()
        self._loops = [_task(self._watch(model, handle)) for model, handle in engines.items()]
        self._loops += [_task(self._watch_external(each)) for each in external]

    async def stop(self) -> None:
        """End every loop, and wait until its connections are released."""
        self._stopped = True
        tasks = [*self._loops, *self._touching]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, model: str, handle: DeploymentHandle[Any]) -> None:
        answered_at = time.monotonic()
        while not self._stopped:  # Python 3.11's wait_for loses a cancellation that meets the answer
            try:
                reports, silent = await ask_every_replica(handle, "describe", POLL_TIMEOUT_S)
                answered_at = time.monotonic()
                self._learn(model, reports, silent, answered_at)
            except Exception as error:  # the loop must survive any failure of a poll
                self._cannot_ask(model, error, answered_at)
            self._changed(model)
            await asyncio.sleep(self._period_s)

    def _cannot_ask(self, model: str, error: Exception, answered_at: float) -> None:
        """Serve has an error of its own for "no replica". A fleet that scales to zero is then emptied at
        once; any other one keeps its members for a while, as the controller may have restarted."""
        no_replica = means_no_replica(error) and model in self._may_be_empty
        if not no_replica:
            self._say(model, f"no replica can be asked for its load ({type(error).__name__})")
        if no_replica or time.monotonic() - answered_at > FORGET_AFTER_S:
            self._fleet.update(model, [], time.monotonic())

    def _say(self, model: str, trouble: str) -> None:
        """Log a trouble when it begins: polls repeat several times a second, and an engine that starts has no
        replica for minutes."""
        if self._said.get(model) != trouble:
            self._said[model] = trouble
            logger.warning("model %s: %s", model, trouble)

    def _learn(self, model: str, reports: list[EngineReport], silent: int, now: float) -> None:
        """Members without a report are removed, unless some replica did not answer: it may be one of them."""
        if silent:
            self._say(model, f"{silent} replicas did not report their load")
        else:
            self._said.pop(model, None)
        keep_since = now - FORGET_AFTER_S if silent else now
        for member in self._fleet.update(model, reports, now, keep_since=keep_since):
            # Connect before the first request, in a task of its own: a new member may hang.
            task = _task(self._upstream.fetch(member.report, HEALTH_PATH))
            self._touching.add(task)
            task.add_done_callback(self._touching.discard)

    async def _watch_external(self, external: ExternalUpstream) -> None:
        report, health = external.report, Health()
        while not self._stopped:
            try:
                report = await self._look_at(report, external, health)
                self._fleet.learn(report, time.monotonic())
                self._changed(report.model)
            except Exception as error:  # the loop must survive any failure of a check
                logger.warning("health of %s failed: %s", report.replica_id, type(error).__name__)
            period_s = external.health_period_s
            await asyncio.sleep(min(period_s, DOUBT_PERIOD_S) if health.is_doubtful else period_s)

    async def _look_at(
        self, report: EngineReport, external: ExternalUpstream, health: Health
    ) -> EngineReport:
        began_at = time.monotonic()
        probe = await self._upstream.probe(report, external.health_target, external.health_timeout_s)
        state = health.record(probe, bytes_arrived=self._fleet.last_byte_at(report) >= began_at)
        healthy = state is EngineState.READY
        if probe is Probe.TIMED_OUT and healthy:
            logger.info("upstream %s of %s: no answer to a health check", report.replica_id, report.model)
        if state is not report.state:
            logger.info("upstream %s of %s: %s", report.replica_id, report.model, state.value)
        limits = report.token_limits
        if healthy and limits.context is None:
            limits = await self._token_limits(report)
        return replace(report, state=state, token_limits=limits)

    async def _token_limits(self, report: EngineReport) -> TokenLimits:
        """vLLM lists its context length beside the model; a continuation needs to know it."""
        if not report.gives_token_ids:
            return TokenLimits()
        models = await self._upstream.fetch(report, f"{report.api_prefix}/models")
        return TokenLimits(context=context_tokens(models or b"", report.served_as or report.model))


def _task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)
