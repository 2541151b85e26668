"""The loop that puts an engine to sleep and wakes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from support.graph import eventually

from deployments.engine.sleep.transitions import EngineSleep


class Engine:
    """What the loop sees of a replica."""

    def __init__(self) -> None:
        self.ordered = False
        self.requests = 0
        self.done: list[str] = []
        self.store_is_away = False
        self.breaks = False

    def should_sleep(self) -> bool:
        if self.store_is_away:
            raise ConnectionError("no GCS")
        return self.ordered

    async def sleep(self) -> None:
        if self.breaks:
            raise RuntimeError("no memory to put the weights in")
        self.done.append("sleep")

    async def wake(self) -> None:
        self.done.append("wake")


@asynccontextmanager
async def watched(engine: Engine) -> AsyncIterator[EngineSleep]:
    loop = EngineSleep(
        should_sleep=engine.should_sleep,
        is_busy=lambda: engine.requests > 0,
        sleep=engine.sleep,
        wake=engine.wake,
        quiet_s=0.0,
        period_s=0.005,
    )
    try:
        yield loop
    finally:
        await loop.stop()


async def seen(condition: Callable[[], bool]) -> bool:
    async def so() -> bool:
        return condition()

    return await eventually(so, within_s=5)


async def test_it_sleeps_and_wakes_as_it_should() -> None:
    engine = Engine()
    async with watched(engine) as loop:
        engine.ordered = True
        assert await seen(lambda: engine.done == ["sleep"])
        assert loop.is_withdrawn
        engine.ordered = False
        assert await seen(lambda: not loop.is_withdrawn)
    assert engine.done == ["sleep", "wake"]


async def test_a_request_to_a_sleeper_is_served() -> None:
    engine = Engine()
    async with watched(engine):
        engine.ordered = True
        assert await seen(lambda: engine.done == ["sleep"])
        engine.requests = 1
        assert await seen(lambda: engine.done == ["sleep", "wake"])
        engine.requests = 0
        assert await seen(lambda: engine.done == ["sleep", "wake", "sleep"])


async def test_without_an_answer_from_the_store_its_state_stays() -> None:
    engine = Engine()
    async with watched(engine) as loop:
        engine.ordered = True
        assert await seen(lambda: engine.done == ["sleep"])
        engine.store_is_away, engine.ordered = True, False
        await asyncio.sleep(0.05)  # many looks
        assert engine.done == ["sleep"]
        engine.store_is_away = False
        assert await seen(lambda: engine.done == ["sleep", "wake"])
        loop.check()


async def test_an_engine_that_cannot_sleep_fails_its_health_check() -> None:
    engine = Engine()
    async with watched(engine) as loop:
        loop.check()
        engine.breaks, engine.ordered = True, True

        def is_sick() -> bool:
            try:
                loop.check()
            except RuntimeError:
                return True
            return False

        assert await seen(is_sick)
        with pytest.raises(RuntimeError, match="no memory"):
            loop.check()
