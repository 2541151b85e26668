"""Many requests: a fixed number in flight, or each at its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from benchmarks.load.client import LIMIT_S, Client
from benchmarks.load.requests import Request, Sample

T = TypeVar("T")


async def closed_loop(
    url: str, requests: Sequence[Request], streams: int, *, limit_s: float = LIMIT_S
) -> list[Sample]:
    """Keep ``streams`` requests in flight: each stream sends its next request when the last one is answered.

    Returns one sample per request, in order; requests that the time limit left unsent are errors as well.
    """
    samples: dict[int, Sample] = {}
    todo = iter(enumerate(requests))

    async def stream(client: Client) -> None:
        for index, request in todo:
            samples[index] = await client.send(request)

    async with Client(url, limit_s) as client:
        await asyncio.gather(*(stream(client) for _ in range(streams)))
    return [samples[index] for index in range(len(requests))]


async def open_loop(
    url: str, arrivals: Sequence[tuple[float, Request]], *, limit_s: float = LIMIT_S
) -> list[Sample]:
    """Send each request at its own time (seconds after the start), however slow the answers are."""

    async def one(client: Client, at: float, request: Request) -> Sample:
        await asyncio.sleep(min(at, limit_s) - client.now())
        return await client.send(request, at)

    async with Client(url, limit_s) as client:
        work: list[Awaitable[Sample]] = [one(client, at, request) for at, request in arrivals]
        return await asyncio.gather(*work)


def run_fast(main: Awaitable[T]) -> T:
    """Run on uvloop if it is installed."""

    async def awaited() -> T:
        return await main

    try:
        import uvloop
    except ImportError:
        return asyncio.run(awaited())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(awaited())
