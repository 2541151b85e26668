"""Every gateway is asked for what it measured; one that is late takes nothing away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from deployments.gateway.deployment import AllGateways
from deployments.gateway.monitoring.monitor import Measured

Answer = Callable[[], Awaitable[Any]]


class Replica:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def get_async(self) -> Any:
        return await self._answer()


class Broadcast:
    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = answers

    async def _fetch_replica_results_async(self) -> list[Replica]:
        return [Replica(answer) for answer in self._answers]

    async def results_async(self, **options: Any) -> list[Any]:
        return await asyncio.gather(*(answer() for answer in self._answers), **options)


class Handle:
    """What a deployment handle gives for ``broadcast``."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers

    def broadcast(self, method: str, *arguments: Any) -> Broadcast:
        return Broadcast(self._answers)


async def quick() -> Measured:
    return Measured("quick", b"")


async def never() -> Measured:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nothing ends the wait")


async def fails() -> Measured:
    raise RuntimeError("it stops")


async def asked(*answers: Answer) -> list[str]:
    handle: Any = Handle(*answers)
    return [each.gateway for each in await AllGateways(handle, timeout_s=0.2).measured()]


async def test_a_gateway_that_never_answers_is_left_out_and_the_others_stay() -> None:
    assert await asked(quick, never, fails, quick) == ["quick", "quick"]


async def test_no_answer_in_time_is_none() -> None:
    assert await asked(never, never) == []
