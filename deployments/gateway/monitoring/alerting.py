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
        changes = self._watch.judge(together.figures, self._clock())
        for change in changes:
            self._changes.appendleft(_shown_change(change, self._wall()))
            if together.leads:
                logger.log(logging.WARNING if change.firing else logging.INFO, "%s", change)
                if self._post is not None:
                    self._post(change, self._wall())
        for each in self._watch.standing(self._clock()):
            self._meter.set(FIRING, float(each.firing), {"rule": each.rule.name, "model": each.model})
        return changes

    def shown(self) -> dict[str, Any]:
        """For ``/admin/alerts``."""
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
        "limit": rule.limit,
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
