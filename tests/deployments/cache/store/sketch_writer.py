"""A process that writes to and deletes from the embedded store until it is killed:
``python sketch_writer.py FOLDER FIRST``.

It prints ``open``, and the number of each step after it: ``FIRST`` and on. Step ``n`` puts the entry of slot
``n % SLOTS``, or, every fifth time, deletes another one.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from uuid import UUID

import numpy as np
from store_samples import DIMENSION, EMBEDDER, entry

from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry, Selection

SLOTS = 250
SKETCH_FROM = 100


def slot(number: int) -> CacheEntry:
    """Everything in an entry follows from its number."""
    random = np.random.default_rng(number)
    vector = random.standard_normal(DIMENSION).astype(np.float32)
    return entry(
        entry_id=UUID(int=number + 1),
        text=str(number),
        vector=(vector / np.linalg.norm(vector)).tobytes(),
        expires_at=1e12,
    )


async def write_forever(folder: str, first: int) -> None:
    store = await EdgeStore.open(folder, DIMENSION, EMBEDDER, SKETCH_FROM)
    print("open", flush=True)
    for number in itertools.count(first):
        if number % 5:
            await store.put(slot(number % SLOTS))
        else:
            await store.delete(Selection(entry_id=slot(number * 7 % SLOTS).entry_id))
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(write_forever(sys.argv[1], int(sys.argv[2])))
