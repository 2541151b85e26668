"""The times of a hit over HTTP, of a miss beside the engine, of the decision, and of an embedded store with
many entries."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from cache_lab.cosines import EMBEDDER, SHIPPED_DTYPE
from cache_lab.pairs import OWN_PAIRS, WRITTEN_PAIRS, LabelledPair, read_pairs

from benchmarks.engines import scripted_engine
from benchmarks.layer import settings_for
from benchmarks.load import Request, Sample, chat_request, closed_loop, percentile, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.table import Figure, at_least, at_most, write_report
from deployments.cache.decision import open_decision
from deployments.launcher.ports import free_port
from serve_app.cache.decision import Verdict
from serve_app.settings import CacheSettings

# No recent texts are kept, so that every semantic hit is embedded.
EMBEDDER_SETTINGS = {"id": "embedder", "source": EMBEDDER, "dtype": SHIPPED_DTYPE, "recent_texts": 0}
MODEL = "scripted"
TOKENS, ITL_MS = 20, 1.0
ONE_CLIENT, CROWD, CROWD_REQUESTS = 500, 64, 6000
SEMANTIC_ROUNDS = 8
"""How often each text with a hit is asked again."""

ENTRIES, DIMENSION, SEARCHES = 200_000, 384, 300
PARTITIONS = 100
WARM_SEARCHES = 20

MISSES = 200
"""Requests in each repeat that find the store gone, or that miss beside the engine; as many are sent without
a cache."""

WARM_TEXTS = 20
"""Questions that each endpoint is asked before anything is timed."""

CANDIDATES, DECISIONS = 3, 100
NEAR = 0.9
"""The cosine given to the timed decisions."""

UNTIL_OPEN = 20
"""Requests after which the breaker is surely open: it takes five failures."""


@dataclass(frozen=True)
class Hits:
    """Times are milliseconds from sending to the last byte. There is one client, except for
    ``exact_per_s``."""

    exact_p50_ms: float
    exact_per_s: float
    semantic_p50_ms: float
    semantic_p99_ms: float


@dataclass(frozen=True)
class Filled:
    """A store of many entries. ``shared``: all entries in one partition; ``spread``: in a hundred."""

    start_s: float
    shared_p50_ms: float
    spread_p50_ms: float
    memory_mib: float


def run(options: Options) -> list[Figure]:
    hits = [_hits(options) for _ in range(options.repeats)]
    entries = 5_000 if options.quick else ENTRIES
    filled = _filled(entries, options.repeats)
    added_ms = _broken_store(options)
    raced_ms = _raced_miss(options)
    decided = _decision_ms(options)
    figures = [
        _figure(hits, "exact_p50_ms", "exact hit p50, 1 client", "ms", at_most(3)),
        _figure(hits, "exact_per_s", f"exact hits per second, {CROWD} clients", "1/s", at_least(600)),
        _figure(hits, "semantic_p50_ms", "semantic hit p50, 1 client", "ms", at_most(16)),
        _figure(hits, "semantic_p99_ms", "semantic hit p99, 1 client", "ms", at_most(35)),
        Figure(f"decision alone, {CANDIDATES} candidates, p50", "ms", tuple(decided), at_most(9)),
        Figure("TTFT p50 over no cache, a miss beside the engine", "ms", tuple(raced_ms), at_most(0.5)),
        Figure("TTFT p50 over no cache, store gone, breaker open", "ms", tuple(added_ms), at_most(1)),
        _figure(
            filled, "shared_p50_ms", f"search p50, {entries:,} entries in one partition", "ms", at_most(3)
        ),
        _figure(
            filled, "spread_p50_ms", f"search p50, {entries:,} in {PARTITIONS} partitions", "ms", at_most(3)
        ),
        _figure(filled, "start_s", f"start of a store with {entries:,} entries", "s", at_most(5)),
        _figure(filled, "memory_mib", f"memory with {entries:,} entries", "MiB", None),
    ]
    about = {
        "engine": f"scripted, {TOKENS} tokens",
        "embedder": f"{EMBEDDER}, {SHIPPED_DTYPE}",
        "vectors": f"{DIMENSION} float32",
    }
    write_report(options.out, "cache", figures, about=about)
    return figures


def _figure(repeats: Sequence[Any], name: str, title: str, unit: str, target: Any) -> Figure:
    return Figure(title, unit, tuple(getattr(repeat, name) for repeat in repeats), target)


# ---- over HTTP -------------------------------------------------------------------------------------------


def _hits(options: Options) -> Hits:
    with (
        scripted_engine(MODEL, TOKENS, ITL_MS) as engine,
        promptly(_settings(engine.url)) as endpoint,
    ):
        return run_fast(_measure(endpoint, options))


def _broken_store(options: Options) -> list[float]:
    """The delay that a store that refuses connections adds once the breaker is open: the TTFT compared with
    the same gateway without a cache. Both gateways run at once and are asked in turns."""
    gone = {"url": f"http://127.0.0.1:{free_port()}"}
    cache = {"race": False, "store": "qdrant", "qdrant": gone, "breaker_cooldown_s": 3600.0}
    count = MISSES // (10 if options.quick else 1)
    with (
        scripted_engine(MODEL, TOKENS, ITL_MS) as engine,
        promptly(settings_for(engine.url)) as plain,
        promptly(settings_for(engine.url, embedder=EMBEDDER_SETTINGS, cache=cache)) as broken,
    ):
        asked = itertools.count()
        for endpoint in (plain, broken):
            _ttft_ms(endpoint, asked, UNTIL_OPEN)
        added = []
        for repeat in range(options.repeats):
            order = (plain, broken)[:: options.order(repeat)]
            found = {endpoint.url: _ttft_ms(endpoint, asked, count) for endpoint in order}
            added.append(found[broken.url] - found[plain.url])
        return added


def _ttft_ms(endpoint: Endpoint, asked: Iterator[int], count: int) -> float:
    """The median TTFT of streams that run one after the other, each with another question."""
    return percentile(_ttfts_ms(endpoint, [f"question number {next(asked)}" for _ in range(count)]), 50)


def _ttfts_ms(endpoint: Endpoint, texts: Sequence[str]) -> list[float]:
    """The TTFTs of streams that run one after the other, without those that the cache answered.

    Raises: RuntimeError: a request failed.
    """
    requests = [chat_request(endpoint.model, text, 2 * TOKENS) for text in texts]
    samples = run_fast(closed_loop(endpoint.url, requests, 1))
    failed = sum(not sample.ok or sample.ttft_s is None for sample in samples)
    if failed:
        raise RuntimeError(f"{failed} of {len(texts)} requests failed")
    return [
        1000 * sample.ttft_s
        for sample in samples
        if sample.ttft_s is not None and sample.headers.get("x-cache") not in ("exact", "semantic")
    ]


def _raced_miss(options: Options) -> list[float]:
    """The delay that a look-up adds to a miss while it runs beside the engine: the TTFT compared with the
    same gateway without a cache. The store fills with the questions as they are asked, so later ones have
    near entries that guards and verifier judge. Both gateways run at once and are asked the same in turns."""
    count = MISSES // (10 if options.quick else 1)
    texts = iter(dict.fromkeys(pair.query for pair in read_pairs(WRITTEN_PAIRS) if pair.language == "en"))
    with (
        scripted_engine(MODEL, TOKENS, ITL_MS) as engine,
        promptly(settings_for(engine.url)) as plain,
        promptly(settings_for(engine.url, embedder=EMBEDDER_SETTINGS, cache={"race": True})) as raced,
    ):
        warm = list(itertools.islice(texts, WARM_TEXTS))
        for endpoint in (plain, raced):
            _ttfts_ms(endpoint, warm)
        added = []
        for repeat in range(options.repeats):
            asked = list(itertools.islice(texts, count))
            order = (plain, raced)[:: options.order(repeat)]
            found = {endpoint.url: _ttfts_ms(endpoint, asked) for endpoint in order}
            if len(found[raced.url]) < count / 2:
                raise RuntimeError("most of the questions that should miss were hits")
            added.append(percentile(found[raced.url], 50) - percentile(found[plain.url], 50))
        return added


def _decision_ms(options: Options) -> list[float]:
    """The median time in which the decision judges three near entries, all of which the verifier reads, in
    this process on one thread. The texts are analysed again each time."""
    decision = open_decision(CacheSettings(), EMBEDDER)

    def judge(pair: LabelledPair) -> Verdict:
        return decision.judge(decision.read(pair.query), decision.read(pair.candidate), NEAR)

    read = [pair for pair in read_pairs(OWN_PAIRS) if judge(pair).scores]
    times = []
    for _ in range(options.repeats):
        pairs = itertools.cycle(read)
        took = []
        for _ in range(DECISIONS // (10 if options.quick else 1)):
            began = time.perf_counter()
            for _ in range(CANDIDATES):
                judge(next(pairs))
            took.append(1000 * (time.perf_counter() - began))
        times.append(percentile(took, 50))
    return times


def _settings(url: str) -> dict[str, Any]:
    cache = {"race": False, "lookup_budget_ms": 5000.0}
    return settings_for(url, embedder=EMBEDDER_SETTINGS, cache=cache)


async def _measure(endpoint: Endpoint, options: Options) -> Hits:
    share = 10 if options.quick else 1
    exact = _ask(endpoint, "What is asked again and again?")
    await _until_cached(endpoint, exact)
    alone = _checked(await closed_loop(endpoint.url, [exact] * (ONE_CLIENT // share), 1), "exact")
    crowd = _checked(await closed_loop(endpoint.url, [exact] * (CROWD_REQUESTS // share), CROWD), "exact")
    near = await _near_requests(endpoint)
    semantic = _checked(
        await closed_loop(endpoint.url, near * (SEMANTIC_ROUNDS // min(share, 4)), 1), "semantic"
    )
    span = max(sample.ended_at for sample in crowd) - min(sample.sent_at for sample in crowd)
    return Hits(
        exact_p50_ms=percentile(_times_ms(alone), 50),
        exact_per_s=len(crowd) / span,
        semantic_p50_ms=percentile(_times_ms(semantic), 50),
        semantic_p99_ms=percentile(_times_ms(semantic), 99),
    )


async def _near_requests(endpoint: Endpoint) -> list[Request]:
    """Questions that hit an entry of another text: the paraphrases that the decision accepts."""
    pairs = [pair for pair in read_pairs(OWN_PAIRS) if pair.same]
    stored = [_ask(endpoint, pair.candidate) for pair in pairs]
    await closed_loop(endpoint.url, stored, 8)
    for request in stored:
        await _until_cached(endpoint, request)
    asked = [_ask(endpoint, pair.query) for pair in pairs]
    found = await closed_loop(endpoint.url, asked, 1)
    # Misses are stored by now, so they are exact hits and no longer near texts.
    return [
        request
        for request, sample in zip(asked, found, strict=True)
        if sample.headers.get("x-cache") == "semantic"
    ]


async def _until_cached(endpoint: Endpoint, request: Request) -> None:
    for _ in range(500):
        (sample,) = await closed_loop(endpoint.url, [request], 1)
        if sample.headers.get("x-cache") in ("exact", "semantic"):
            return
        await asyncio.sleep(0.02)
    raise RuntimeError("an answer was not stored within ten seconds")


def _ask(endpoint: Endpoint, text: str) -> Request:
    # More tokens than the answer has: a truncated answer is not stored.
    return chat_request(endpoint.model, text, 2 * TOKENS, stream=False)


def _times_ms(samples: Sequence[Sample]) -> list[float]:
    return [1000 * (sample.ended_at - sample.sent_at) for sample in samples]


def _checked(samples: Sequence[Sample], tier: str) -> Sequence[Sample]:
    """Raises: RuntimeError: another tier answered."""
    others = [sample for sample in samples if not sample.ok or sample.headers.get("x-cache") != tier]
    if others or not samples:
        raise RuntimeError(f"{len(others)} of {len(samples)} requests were no {tier} hits")
    return samples


# ---- the store -------------------------------------------------------------------------------------------


def _filled(entries: int, repeats: int) -> list[Filled]:
    """Fill a store once, then open it in a new process for each repeat."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
        _child("fill", folder, entries)
        return [Filled(**_child("measure", folder, entries)) for _ in range(repeats)]


def _child(what: str, folder: str, entries: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.cache", what, folder, str(entries)]
    scripts = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=scripts, check=True, capture_output=True, text=True, timeout=1800)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _fill(folder: str, entries: int) -> dict[str, Any]:
    from deployments.cache.store.edge import EdgeStore

    for name, partitions in (("shared", 1), ("spread", PARTITIONS)):
        store = await EdgeStore.open(f"{folder}/{name}", DIMENSION, "bench")
        random = np.random.default_rng(1)
        for number in range(entries):
            await store.put(_entry(random, f"p{number % partitions}", number))
        await store.close()
    return {}


async def _open_and_search(folder: str) -> dict[str, Any]:
    before = _peak_kib()
    start_s, shared = await _search(f"{folder}/shared", 1)
    memory_mib = (_peak_kib() - before) / 1024
    _, spread = await _search(f"{folder}/spread", PARTITIONS)
    return asdict(Filled(start_s, percentile(shared, 50), percentile(spread, 50), memory_mib))


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def _search(folder: str, partitions: int) -> tuple[float, list[float]]:
    """Seconds to open, and milliseconds of each search for a vector like the stored ones."""
    from deployments.cache.store.edge import EdgeStore

    started = time.perf_counter()
    store = await EdgeStore.open(folder, DIMENSION, "bench")
    start_s, times = time.perf_counter() - started, []
    random = np.random.default_rng(2)
    for number in range(WARM_SEARCHES + SEARCHES):
        vector = _vector(random)
        began = time.perf_counter()
        await store.nearest(f"p{number % partitions}", vector, time.time(), 0.0, 3)
        if number >= WARM_SEARCHES:
            times.append(1000 * (time.perf_counter() - began))
    await store.close()
    return start_s, times


def _entry(random: np.random.Generator, partition: str, number: int) -> Any:
    from serve_app.cache.entry import CacheEntry
    from serve_app.openai.answers import Answer, Usage

    answer = Answer(MODEL, "An answer of some length. " * 8, Usage(10, 50, 60))
    now = time.time()
    return CacheEntry(
        UUID(int=number + 1),
        "t",
        MODEL,
        partition,
        f"q {number}",
        answer,
        now,
        now + 1e6,
        vector=_vector(random),
    )


def _vector(random: np.random.Generator) -> bytes:
    """A unit vector in one of many clusters, as embeddings of texts are."""
    centre = np.random.default_rng(int(random.integers(2000))).standard_normal(DIMENSION)
    vector = (centre + 0.5 * random.standard_normal(DIMENSION)).astype(np.float32)
    return (vector / np.linalg.norm(vector)).tobytes()


if __name__ == "__main__":
    what, where, how_many = sys.argv[1:4]
    sys.path.insert(0, str(Path(__file__).parents[2]))
    work = _fill(where, int(how_many)) if what == "fill" else _open_and_search(where)
    print(json.dumps(asyncio.run(work)))
