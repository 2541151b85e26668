"""Near look-ups per second of a cache of one shard and of two. Each shard is a process of its own, with its
store, the shipped guards and verifier, and the listener that gateways call.

The questions are real ones in many partitions. Their vectors are made up, at the cosine of near texts, so
that no embedder is needed: the search, the decision and the call are measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from cache_lab.cosines import EMBEDDER
from cache_lab.pairs import OWN_PAIRS, read_pairs

from benchmarks.load import run_fast
from benchmarks.options import Options
from benchmarks.table import Figure, at_least, write_report
from deployments.cache.deployment import SemanticCache
from deployments.wire.direct_calls import DirectCalls
from deployments.wire.http1 import Origin, request_bytes
from deployments.wire.pool import ConnectionPool
from serve_app.cache.entry import CacheEntry, CacheQuery
from serve_app.cache.shards import Shards
from serve_app.embedding import EmbedderInfo
from serve_app.openai.answers import Answer, Usage
from serve_app.settings import CacheSettings
from serve_app.wire.calls import CACHE, Wire
from serve_app.wire.private_address import PrivateAddress

DIMENSION, NEAR = 384, 0.9
PARTITIONS, EACH = 64, 20
ASKERS, SECONDS = 16, 10.0
START_S, END_S = 120.0, 30.0
COUNTS = (1, 2)


@dataclass(frozen=True)
class Pair:
    """A stored text, and a near text that is asked. ``vector`` is that of the asked text."""

    entry: CacheEntry
    asked: CacheQuery


def run(options: Options) -> list[Figure]:
    seconds = SECONDS / (10 if options.quick else 1)
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    for repeat in range(options.repeats):
        for count in COUNTS[:: options.order(repeat)]:
            rates[count].append(_rate(count, seconds))
    title = "near look-ups per second"
    figures = [
        Figure(title, "1/s", tuple(rates[1]), series="1 shard"),
        Figure(title, "1/s", tuple(rates[2]), series="2 shards"),
        Figure(
            f"{title}: 2 shards over 1",
            "×",
            tuple(two / one for one, two in zip(rates[1], rates[2], strict=True)),
            at_least(1.6),
        ),
    ]
    about = {
        "load": f"{ASKERS} askers for {seconds:.0f} s, {PARTITIONS} partitions of {EACH} entries",
        "store": "embedded, a folder for each shard",
    }
    write_report(options.out, "cache_shards", figures, about=about)
    return figures


def _rate(count: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder, ExitStack() as stack:
        addresses = [stack.enter_context(_shard(folder, shard, count)) for shard in range(count)]
        return run_fast(_asked(addresses, count, seconds))


@contextmanager
def _shard(folder: str, shard: int, count: int) -> Iterator[PrivateAddress]:
    command = [sys.executable, "-m", "benchmarks.cache_shards", folder, str(shard), str(count)]
    process = subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("{")), "")
        yield PrivateAddress(**json.loads(line))
    finally:
        process.communicate("", timeout=END_S)


async def _asked(addresses: Sequence[PrivateAddress], count: int, seconds: float) -> float:
    wire, owner = Wire(CACHE), Shards(count).owner
    pool = ConnectionPool(connect_timeout_s=5.0, idle_s=60.0, read_ahead=1 << 20)
    origins = [Origin.behind(address) for address in addresses]
    pairs = list(_pairs())
    requests = []
    for pair in pairs:
        origin = origins[owner(pair.asked.partition)]
        body = wire.encode_arguments("look_up", (pair.asked,))
        requests.append((origin, request_bytes(origin, "POST", "/look_up", {}, body)))
    rng = np.random.default_rng(1)
    done = 0

    async def ask(until: float) -> None:
        nonlocal done
        while time.perf_counter() < until:
            origin, request = requests[int(rng.integers(len(requests)))]
            status, answer = await pool.ask(origin, request)
            if status != 200:
                raise RuntimeError(answer.decode(errors="replace"))
            done += 1

    try:
        await asyncio.gather(*(ask(time.perf_counter() + seconds / 10) for _ in range(ASKERS)))  # warm
        done, began = 0, time.perf_counter()
        await asyncio.gather(*(ask(began + seconds) for _ in range(ASKERS)))
        return done / (time.perf_counter() - began)
    finally:
        pool.close()


def _pairs() -> Iterator[Pair]:
    """The pairs, which are the same in every process."""
    rng = np.random.default_rng(0)
    read = read_pairs(OWN_PAIRS)
    now = time.time()
    for number in range(PARTITIONS * EACH):
        pair, partition = read[number % len(read)], f"p{number % PARTITIONS}"
        stored, beside = _unit(rng.standard_normal(DIMENSION)), rng.standard_normal(DIMENSION)
        beside = _unit(beside - stored * float(beside @ stored))
        asked = NEAR * stored + float(np.sqrt(1 - NEAR**2)) * beside
        answer = Answer("m", "An answer of some length. " * 8, Usage(10, 50, 60))
        entry = CacheEntry(
            UUID(int=number + 1),
            "t",
            "m",
            partition,
            pair.candidate,
            answer,
            now,
            now + 1e6,
            (),
            _bytes(stored),
        )
        yield Pair(entry, CacheQuery(uuid4(), partition, pair.query, _bytes(asked)))


def _unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def _bytes(vector: Any) -> bytes:
    return bytes(vector.astype(np.float32).tobytes())


# ---- one shard's process ---------------------------------------------------------------------------------


class _Embedder:
    """The part of an embedder's handle that a cache uses."""

    @property
    def describe(self) -> _Embedder:
        return self

    async def remote(self) -> EmbedderInfo:
        return EmbedderInfo(EMBEDDER, DIMENSION, 256, source=EMBEDDER)


class _Cache(SemanticCache):
    """A cache without Serve, which awaits the destructor; the interpreter would not."""

    def __del__(self) -> None:  # type: ignore[override]
        """Does nothing, because ``_serve`` closes the cache."""


async def _serve(folder: str, shard: int, count: int) -> None:
    """Serve one shard until standard input ends."""
    rules = CacheSettings(path=folder, shards=count)
    cache = _Cache.__new__(_Cache)
    await cache.__init__(rules, _Embedder(), shard=shard)  # type: ignore[misc]
    owner = Shards(count).owner
    for pair in _pairs():
        if owner(pair.entry.partition) == shard:
            await cache.put(pair.entry)
    calls = DirectCalls(CACHE, {name: getattr(cache, name) for name in CACHE}, "127.0.0.1")
    print(json.dumps(asdict(calls.address)), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await calls.stop()
    await cache.close()


if __name__ == "__main__":
    run_fast(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
