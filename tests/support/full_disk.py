"""A store on a disk that gets full, in a process of its own: what goes wrong there is a signal.

    python -m support.full_disk FOLDER MIN_FREE_BYTES

Prints one line for each thing that it did, the last one ``end``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from deployments.cache.store import StoreError
from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry
from serve_app.openai.answers import Answer, Usage

DIMENSION = 4
VECTOR = np.array([1, 0, 0, 0], np.float32).tobytes()
TEXT = "x" * 100_000


def entry() -> CacheEntry:
    now = time.time()
    answer = Answer("m", TEXT, Usage(1, 1, 2))
    return CacheEntry(uuid4(), "t", "m", "p", "question", answer, now, now + 600, (), VECTOR)


def say(what: str, value: object = "") -> None:
    print(what, value, flush=True)


async def attempt(what: str, work: Awaitable[object]) -> None:
    try:
        await work
        say(what, "ok")
    except StoreError as error:
        say(what, type(error).__name__)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes; the test is skipped where none can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `mount` to make a small disk with")
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """A file that leaves so many bytes free."""
    path = folder / "other-file"
    found = os.statvfs(folder)
    with path.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, found.f_bavail * found.f_frsize - leave)
    return path


async def main(folder: Path, floor: int) -> None:
    async def opened() -> EdgeStore:
        return await EdgeStore.open(str(folder / "store"), DIMENSION, "test", min_free_bytes=floor)

    async def stored(entries: int) -> None:
        for _ in range(entries):
            await store.put(entry())

    store = await opened()
    first = entry()
    await store.put(first)
    say("opened", "ok")
    other = fill(folder, floor // 2 if floor else 64 << 10)
    await attempt("put while room is short", stored(400))
    await attempt("get while room is short", store.get(first.entry_id))
    other.unlink()
    other = fill(folder, 0)
    await attempt("put on a full disk", stored(1))
    await attempt("get on a full disk", store.get(first.entry_id))
    await attempt("close on a full disk", store.close())
    await attempt("open on a full disk", opened())
    other.unlink()
    store = await opened()
    say("kept", (await store.get(first.entry_id)) is not None)
    await attempt("put after all", stored(1))
    await store.close()
    say("end")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
