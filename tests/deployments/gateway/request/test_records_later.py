"""Sinks look at finished requests a moment later, in small batches, and the end of the gateway loses none."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from support.graph import eventually

from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.finished import BATCH, DELAY_S, Finished
from serve_app.request.record import RequestRecord


async def nothing(*_: Any) -> Any:
    """Nothing is received or sent."""


def exchange() -> Exchange:
    return Exchange({"type": "http", "method": "GET", "path": "/", "headers": []}, nothing, nothing)


async def test_no_sink_runs_before_other_work_and_no_batch_is_large() -> None:
    records: list[RequestRecord] = []
    sizes: list[int] = []
    finished = Finished([], later=[records.append])
    made = [finished(exchange()) for _ in range(2 * BATCH + 1)]
    assert not records

    async def all_of_them() -> bool:
        return len(records) == len(made)

    async def watch() -> None:
        while True:
            sizes.append(len(records))
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    try:
        assert await eventually(all_of_them, within_s=5)
    finally:
        watching.cancel()
    assert records == made
    steps = [later - earlier for earlier, later in pairwise([*sizes, len(records)])]
    assert max(steps) <= BATCH, "other work has its turn between batches"


async def test_each_record_waits_for_its_own_delay() -> None:
    """The records of many streams that end one after the other do not meet the next streams' first tokens."""
    now = asyncio.get_running_loop().time
    handed: dict[str, float] = {}
    made: dict[str, float] = {}
    finished = Finished([], later=[lambda record: handed.setdefault(record.request_id, now())])
    for _ in range(6):
        ended = exchange()
        made[ended.request_id] = now()
        finished(ended)
        await asyncio.sleep(DELAY_S / 4)
    assert await eventually(lambda: all_handed(handed, made), within_s=5)
    assert all(handed[each] - made[each] >= DELAY_S for each in made)


async def all_handed(handed: dict[str, float], made: dict[str, float]) -> bool:
    return handed.keys() == made.keys()


async def test_what_waits_at_the_end_is_handed_on() -> None:
    records: list[RequestRecord] = []
    finished = Finished([], later=[records.append])
    made = [finished(exchange()) for _ in range(3)]
    finished.close()
    assert records == made
