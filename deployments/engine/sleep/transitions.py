"""Puts an engine to sleep and wakes it as the autoscaling policy decides. Waking takes seconds, a start a
minute."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from serve_app.autoscaling import Rest, Sleeper

PERIOD_S = 0.25
"""Between two polls of the policy's decision; it adds to the wait of a woken replica's first request."""

QUIET_S = 3.0
"""How long a withdrawn replica must be idle before it sleeps; gateways notice the withdrawal in a fraction of
this time."""

logger = logging.getLogger("ray.serve")

Act = Callable[[], Awaitable[None]]


class EngineSleep:
    """Sleep and wake of one engine. ``should_sleep`` (blocking; called on a thread) returns whether this
    replica should sleep, ``is_busy`` whether it has requests. ``sleep`` returns when running requests have
    ended and the engine sleeps."""

    def __init__(
        self,
        *,
        should_sleep: Callable[[], bool],
        is_busy: Callable[[], bool],
        sleep: Act,
        wake: Act,
        quiet_s: float = QUIET_S,
        period_s: float = PERIOD_S,
    ) -> None:
        self._should_sleep = should_sleep
        self._is_busy = is_busy
        self._sleep = sleep
        self._wake = wake
        self._period_s = period_s
        self._sleeper = Sleeper(quiet_s)
        self._error: Exception | None = None
        self._following = asyncio.get_running_loop().create_task(self._follow())

    @property
    def is_asleep(self) -> bool:
        """Whether it sleeps or is still waking up."""
        return self._sleeper.is_asleep

    @property
    def is_withdrawn(self) -> bool:
        """Whether it takes no new requests."""
        return self._sleeper.is_withdrawn

    def check(self) -> None:
        """Raise the error of a failed sleep or wake-up: the engine is then unusable."""
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            try:
                should_sleep = await asyncio.to_thread(self._should_sleep)
            except Exception as error:  # the GCS is unreachable: keep the state
                logger.debug("cannot read whether to sleep: %r", error)
                continue
            try:
                await self._step(should_sleep)
            except Exception as error:  # any error: the health check reports it
                logger.error("the engine cannot sleep or wake: %r", error)
                self._error = error
                return

    async def _step(self, should_sleep: bool) -> None:
        began = time.monotonic()
        match self._sleeper.next(should_sleep, self._is_busy(), began):
            case Rest.SLEEP:
                await self._sleep()
                self._sleeper.slept()
                logger.info("asleep after %.1f s", time.monotonic() - began)
            case Rest.WAKE:
                await self._wake()
                self._sleeper.woke()
                logger.info("awake after %.1f s", time.monotonic() - began)
            case Rest.NOTHING:
                pass
