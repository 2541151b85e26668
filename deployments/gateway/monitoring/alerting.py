"""Judges the alerts every few seconds, and says what has changed: in the log, as a metric, to a webhook."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from deployments.gateway.monitoring.monitor import Clock, Monitor
from serve_app.alerts import AlertWatch, Change, Standing, rules_of
from serve_app.monitoring.metrics import FIRING, Meter
from serve_app.settings.alerts import AlertSettings

KEPT_CHANGES = 100

TAKEN_OVER_S = 120.0
"""How far back a gateway that begins to lead repeats what it has seen clear: the one before it may have ended
before it judged the same. What fires is repeated however old it is."""

logger = logging.getLogger("ray.serve")


class Post(Protocol):
    def __call__(self, change: Change, unix_s: float) -> None:
        """Send it on, without waiting."""


class Alerting:
    """Every gateway judges the figures of all; the one that leads logs and posts what changes. ``clock`` does
    not go back; ``wall`` gives Unix seconds."""

    def __init__(
        self,
        settings: AlertSettings,
        monitor: Monitor,
        meter: Meter,
        post: Post | None,
        *,
        clock: Clock = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        rules = rules_of(settings) if settings.enabled else ()
        self._watch = AlertWatch(rules, hold_s=settings.hold_s, clear_s=settings.clear_s)
        self._monitor = monitor
        self._meter = meter
        self._post = post
        self._period_s = settings.period_s
        self._clock = clock
        self._wall = wall
        self._changes: deque[dict[str, Any]] = deque(maxlen=KEPT_CHANGES)
        self._newest: dict[tuple[str, str], tuple[Change, float]] = {}
        self._led: bool | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._judge_forever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _judge_forever(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.judge()
            except Exception:  # a monitor that fails must not end silently
                logger.exception("alerts could not be judged")

    async def judge(self) -> list[Change]:
        """What has changed since the last time."""
        together = await self._monitor.together()
        now = self._clock()
        changes = self._watch.judge(together.figures, now)
        for change in changes:
            self._changes.appendleft(_shown_change(change, self._wall()))
            self._newest[change.rule.name, change.model] = change, now
        if together.leads:
            for change in self._taken_over(now) if self._led is False else changes:
                self._tell(change)
        self._led = together.leads
        for each in self._watch.standing(self._clock()):
            self._meter.set(FIRING, float(each.firing), {"rule": each.rule.name, "model": each.model})
        return changes

    def _taken_over(self, now: float) -> list[Change]:
        """What a new leader says first."""
        return [change for change, at in self._newest.values() if change.firing or now - at <= TAKEN_OVER_S]

    def _tell(self, change: Change) -> None:
        logger.log(logging.WARNING if change.firing else logging.INFO, "%s", change)
        if self._post is not None:
            self._post(change, self._wall())

    def shown(self) -> dict[str, Any]:
        """What ``/admin/alerts`` shows."""
        standing = [_shown(each) for each in self._watch.standing(self._clock())]
        return {
            "firing": [each for each in standing if each["firing"]],
            "rules": standing,
            "changes": list(self._changes),
        }


def _shown(standing: Standing) -> dict[str, Any]:
    rule, value = standing.rule, standing.value
    return {
        "rule": rule.name,
        "model": standing.model,
        "firing": standing.firing,
        "value": None if value is None else round(value, 4),
        "limit": rule.said_limit,
        "unit": rule.unit,
        "summary": rule.summary,
        "for_s": round(standing.since_s, 1),
    }


def _shown_change(change: Change, unix_s: float) -> dict[str, Any]:
    return {
        "at": round(unix_s, 3),
        "rule": change.rule.name,
        "model": change.model,
        "firing": change.firing,
        "value": None if change.value is None else round(change.value, 4),
    }
