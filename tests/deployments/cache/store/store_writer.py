"""A process that writes to the embedded store until it is killed: ``python store_writer.py FOLDER FIRST``.

It prints ``opening``, ``open``, and each write's number after it: ``FIRST`` and on. Write ``n`` replaces
the entry of slot ``n % SLOTS``, and everything in the entry follows from ``n``.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from uuid import UUID

from store_samples import DIMENSION, EMBEDDER, unit

from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry
from serve_app.openai.answers import Answer, Usage

SLOTS = 23


def written(number: int) -> CacheEntry:
    """Write ``number``; its answer has up to 60 kB."""
    answer = Answer("m", f"{number}," * (number * 37 % 10_000), Usage(number, 1, number + 1))
    return CacheEntry(
        entry_id=UUID(int=number % SLOTS + 1),
        tenant="t",
        model="m",
        partition="p",
        text=str(number),
        answer=answer,
        created_at=float(number),
        expires_at=1e12,
        vector=unit(1, number % SLOTS),
    )


async def write_forever(folder: str, first: int) -> None:
    print("opening", flush=True)
    store = await EdgeStore.open(folder, DIMENSION, EMBEDDER)
    print("open", flush=True)
    for number in itertools.count(first):
        await store.put(written(number))
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(write_forever(sys.argv[1], int(sys.argv[2])))
