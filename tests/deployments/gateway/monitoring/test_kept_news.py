"""Deployments are told of kept requests, whatever becomes of one of them."""

from __future__ import annotations

import asyncio
from typing import Any

from deployments.gateway.monitoring.kept_news import MOST_WAITING, KeptNews


class Replicas:
    """What stands for a deployment's handle: ``broadcast`` reaches one replica."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.told: list[tuple[str, ...]] = []
        self.was_told = asyncio.Event()

    def broadcast(self, method: str, keys: tuple[str, ...]) -> Replicas:
        assert method == "send_held"
        if self.trouble is not None:
            raise self.trouble
        self.told.append(keys)
        return self

    async def _fetch_replica_results_async(self) -> list[Any]:
        return [self]

    async def get_async(self) -> None:
        self.was_told.set()


async def test_what_is_kept_meanwhile_is_told_together_to_all() -> None:
    broken, one, other = Replicas(RuntimeError("no replica")), Replicas(), Replicas()
    news = KeptNews([broken, None, one, other])  # type: ignore[list-item]
    for key in ("a", "b"):
        news(key)
    async with asyncio.timeout(10):
        await one.was_told.wait()
        await other.was_told.wait()
    assert one.told == other.told == [("a", "b")]
    await news.close()
    assert one.told == [("a", "b")]


async def test_the_last_ones_are_told_at_the_end() -> None:
    one = Replicas()
    news = KeptNews([one])  # type: ignore[list-item]
    news("last")
    await news.close()
    assert one.told == [("last",)]


async def test_a_storm_of_failures_is_bounded() -> None:
    one = Replicas()
    news = KeptNews([one])  # type: ignore[list-item]
    for number in range(MOST_WAITING + 10):
        news(str(number))
    await news.close()
    (told,) = one.told
    assert (len(told), told[-1]) == (MOST_WAITING, str(MOST_WAITING + 9))
