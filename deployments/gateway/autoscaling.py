"""The autoscaling policy of gateways, as Serve's controller calls it, and what each gateway tells it. All
rules are in ``serve_app.autoscaling.gateways``; Serve's own delays are 0."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from serve_app.autoscaling.gateways import GatewayPace, GatewayScaler

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

PERIOD_S = 1.0
"""Between two decisions, and between two reports of a gateway."""

TICK_S = 0.1
WINDOW = 50
"""Ticks that count: five seconds."""

LAG, CPU = "lag_s", "cpu"

logger = logging.getLogger("ray.serve")


class LoopWatch:
    """How late this event loop is, and how much of a core this process uses. Made inside the loop.
    ``waits_s``: how long requests wait to begin, which keeps a crowd from making the loop late."""

    def __init__(self, waits_s: Callable[[], float] = lambda: 0.0) -> None:
        self._waits_s = waits_s
        self._lag_s = 0.0
        self._cpu_at = time.monotonic(), time.process_time()
        self._cpu = 0.0
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def metrics(self) -> dict[str, float]:
        """Values of Serve's custom metrics."""
        return {LAG: self._lag_s, CPU: self._cpu}

    async def _watch(self) -> None:
        """Both are smoothed over the window: one full garbage collection is no lag."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(TICK_S)
            lag_s = max(0.0, loop.time() - before - TICK_S, self._waits_s())
            self._lag_s += (lag_s - self._lag_s) / WINDOW
            now, used = time.monotonic(), time.process_time()
            passed_s, used_s = now - self._cpu_at[0], used - self._cpu_at[1]
            self._cpu_at = now, used
            # A tick that came late stands for all the time that it took.
            weight = min(1.0, passed_s / (TICK_S * WINDOW))
            self._cpu += (used_s / passed_s - self._cpu) * weight


class GatewayPolicy:
    """Serve's controller keeps one until the deployment changes."""

    def __init__(self, fewest: int, most: int, max_lag_s: float) -> None:
        self._scaler = GatewayScaler(fewest, most, max_lag_s)
        self._decided: tuple[float, int] | None = None

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """The wanted number of replicas, and no policy state for Serve to keep."""
        return self.decide(context, time.monotonic()), {}

    def decide(self, context: AutoscalingContext, now: float) -> int:
        target = context.target_num_replicas
        if self._decided is not None and now - self._decided[0] < PERIOD_S:
            return self._decided[1]
        paces = paces_of(context)
        wanted = self._scaler.decide(paces, target, now)
        if wanted != target:
            said = ", ".join(f"{each.lag_s * 1000:.0f} ms late at {each.cpu:.0%} CPU" for each in paces)
            logger.info("gateways: %d -> %d (%s)", target, wanted, said or "none has reported")
        self._decided = now, wanted
        return wanted


def paces_of(context: AutoscalingContext) -> list[GatewayPace]:
    """The newest report of each running gateway that has reported."""
    raw = context.raw_metrics or {}
    lags, shares = raw.get(LAG, {}), raw.get(CPU, {})
    return [
        GatewayPace(lags[replica][-1].value, shares[replica][-1].value)
        for replica in context.running_replicas
        if lags.get(replica) and shares.get(replica)
    ]
