"""How much a quiet tenant notices of a noisy one.

One scripted engine with 16 slots serves two tenants, so a fair share is 8. The quiet tenant sends 3 requests
a second (Poisson, fixed seed), each of which is looked up in the cache. The noisy one keeps ten times its
share in flight: plain streams, requests for several answers (``n``), long and deep schemas. It also has many
readers of one long answer, which take one slot together; embeds lists of texts; opens connections whose head
never ends; and sends bodies at a byte and recordings at 2,000 bytes a second. All this is more than the
gateway answers at once. Two phases last equally long: the quiet tenant is first measured alone, then beside
the noisy one, at the same endpoint. The noise comes from a process of its own, so that the quiet tenant's
clock does not wait while the noisy one's answers are read. ``--noise`` selects some kinds of noise.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Collection, Coroutine, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing import get_context
from typing import Any
from urllib.parse import urlsplit

from cache_lab.cosines import EMBEDDER, SHIPPED_DTYPE

from benchmarks.engines import scripted_process
from benchmarks.layer import settings_for
from benchmarks.load import (
    Request,
    Sample,
    chat_request,
    closed_loop,
    open_loop,
    percentile,
    poisson,
    run_fast,
)
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.stopwatch import question
from benchmarks.table import Figure, at_most, write_report

MODEL = "scripted"
SLOTS, TOKENS, ITL_MS, FIRST_TOKEN_MS = 16, 50, 20.0, 25.0
SHARE = SLOTS // 2
TIMES_ITS_SHARE = 10
QUIET_PER_S = 3.0
DURATION_S = 40.0
HALF_OPEN = SLOW_BODIES = 40
KEYS = "PROMPTLY_BENCH_KEYS"
QUIET_KEY, NOISY_KEY = "quiet-tenant-of-the-benchmark", "noisy-tenant-of-the-benchmark"
DRIP_S = 1.0

LONG_MODEL = "long"
"""Its answers are slow, so that many readers cost the gateway little more than their slots."""
LONG_TOKENS, LONG_ITL_MS = 20, 400.0
ROUND_S = 10.0
"""How long all readers ask for the same answer."""
READERS = 200
MOST_AT_ONCE = 240
"""How many requests the gateway answers at once: fewer than the noisy tenant sends."""

EMBEDDER_ID = "embedder"
LISTS, LIST_TEXTS = 10, 1024
"""These are more texts at once than one tenant may have at the embedder."""

TRANSCRIPTIONS = "/v1/audio/transcriptions"
UPLOADS, UPLOAD_BYTES = 8, 20_000_000
UPLOAD_DRIP = b"x" * 2000
"""The pace is just above the lowest one allowed (``limits.min_body_bytes_per_s``)."""

GENERATED = {"plain": 0.6, "answers": 0.2, "schemas": 0.2}
"""The kinds of requests for an answer that no other request asks for, and the share of each."""

READ, LISTED, HEADS, BODIES, RECORDINGS = "readers", "lists", "heads", "bodies", "uploads"
NOISE = {
    **{kind: f"{kind} ({TIMES_ITS_SHARE * SHARE} requests under way together)" for kind in GENERATED},
    READ: f"{READERS} readers of one answer",
    LISTED: f"{LISTS} lists of {LIST_TEXTS} texts to embed",
    HEADS: f"{HALF_OPEN} heads that never end",
    BODIES: f"{SLOW_BODIES} bodies of a byte a second",
    RECORDINGS: f"{UPLOADS} recordings of 2,000 bytes a second",
}
KINDS = tuple(NOISE)


@dataclass(frozen=True)
class Run:
    """The quiet tenant's times alone and beside the noisy one, and the outcomes of the noisy one's
    requests."""

    alone: Sequence[Sample]
    beside: Sequence[Sample]
    noise: Sequence[Sample]


def run(options: Options) -> list[Figure]:
    duration_s = 6.0 if options.quick else DURATION_S
    keys = f"quiet={QUIET_KEY},noisy={NOISY_KEY}"
    runs: list[Run] = []
    for number in range(options.repeats):
        engine_settings = {"tokens": TOKENS, "itl_ms": ITL_MS, "first_token_ms": FIRST_TOKEN_MS}
        with (
            scripted_process(MODEL, slots=SLOTS, max_n=SLOTS, **engine_settings) as engine,
            scripted_process(LONG_MODEL, tokens=LONG_TOKENS, itl_ms=LONG_ITL_MS) as other,
            promptly(application(engine.url, other.url), env={KEYS: keys}) as endpoint,
        ):
            runs.append(measure(endpoint.url, duration_s, number, options.noise or KINDS))
    figures = all_figures(runs)
    about = {
        "engine": f"{SLOTS} slots, {TOKENS} tokens of {ITL_MS:g} ms, the first after {FIRST_TOKEN_MS:g} ms",
        "quiet tenant": f"{QUIET_PER_S:g} requests/s for {duration_s:g} s, Poisson",
        "noisy tenant": "; ".join(what for kind, what in NOISE.items() if kind in (options.noise or KINDS)),
    }
    write_report(options.out, "noisy", figures, about=about)
    return figures


def application(engine_url: str, long_url: str) -> dict[str, Any]:
    upstream = {"name": "long", "url": f"{long_url}/v1", "kind": "vllm", "max_requests": SLOTS}
    upstream["paths"] = ["/v1/chat/completions", TRANSCRIPTIONS]
    settings = settings_for(
        engine_url,
        max_requests=SLOTS,
        auth={"keys_env": KEYS},
        embedder={"id": EMBEDDER_ID, "source": EMBEDDER, "dtype": SHIPPED_DTYPE, "threads": 1},
        cache={},
        limits={"max_concurrent_requests": MOST_AT_ONCE},
    )
    settings["models"].append({"id": LONG_MODEL, "upstreams": [upstream]})
    return settings


def measure(url: str, duration_s: float, seed: int, kinds: Collection[str]) -> Run:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(int).result()  # the process has started before anything is measured
        return run_fast(both(url, duration_s, seed, kinds, pool))


async def both(url: str, duration_s: float, seed: int, kinds: Collection[str], pool: Executor) -> Run:
    """Run the two phases; the first request of each does not count."""
    await closed_loop(url, [quiet_request(number) for number in range(8)], 2)
    count = round(QUIET_PER_S * duration_s)
    alone = await open_loop(url, quiet_arrivals(range(8, 8 + count), seed))
    loop = asyncio.get_running_loop()
    noise = loop.run_in_executor(pool, noise_of, url, duration_s + 4, seed, tuple(kinds))
    await asyncio.sleep(2)  # wait until the load has built up
    # The questions differ from those of the first phase, which the cache would answer.
    beside = await open_loop(url, quiet_arrivals(range(8 + count, 8 + 2 * count), seed))
    return Run(alone, beside, await noise)


def noise_of(url: str, duration_s: float, seed: int, kinds: Collection[str]) -> list[Sample]:
    """Make the noise, in a process of its own."""
    return run_fast(make_noise(url, duration_s, seed, kinds))


def quiet_arrivals(numbers: Sequence[int], seed: int) -> list[tuple[float, Request]]:
    return poisson([quiet_request(number) for number in numbers], QUIET_PER_S, seed)


def quiet_request(number: int) -> Request:
    return of_tenant(QUIET_KEY, chat_request(MODEL, question(number), TOKENS))


def of_tenant(key: str, request: Request) -> Request:
    return replace(request, headers={"authorization": f"Bearer {key}"})


async def make_noise(url: str, duration_s: float, seed: int, kinds: Collection[str]) -> list[Sample]:
    mixtures = requests_of(seed, kinds)  # they are made first, because this takes a while
    nuisances = [asyncio.ensure_future(each) for each in nuisances_of(url, kinds)]
    try:
        streams = await asyncio.gather(*(noisy_stream(url, duration_s, each) for each in mixtures))
        if not mixtures:
            await asyncio.sleep(duration_s)
        return [sample for stream in streams for sample in stream]
    finally:
        for nuisance in nuisances:
            nuisance.cancel()
        await asyncio.gather(*nuisances, return_exceptions=True)


def requests_of(seed: int, kinds: Collection[str]) -> list[Iterator[Request]]:
    """What each of the noisy tenant's clients sends, one request after the other."""
    mixtures: list[Iterator[Request]] = []
    if not GENERATED.keys().isdisjoint(kinds):
        chances = (random.Random(f"{seed} {number}") for number in range(TIMES_ITS_SHARE * SHARE))
        mixtures += [noisy_requests(chance, kinds) for chance in chances]
    if READ in kinds:
        mixtures += [joined_requests() for _ in range(READERS)]
    if LISTED in kinds:
        chances = (random.Random(f"{seed} list {number}") for number in range(LISTS))
        mixtures += [repeat(list_of_texts(chance)) for chance in chances]
    return mixtures


def nuisances_of(url: str, kinds: Collection[str]) -> list[Coroutine[Any, Any, None]]:
    """Connections that never complete a request."""
    found: list[Coroutine[Any, Any, None]] = []
    if HEADS in kinds:
        found += [half_open(url) for _ in range(HALF_OPEN)]
    if BODIES in kinds:
        found += [slow_body(url) for _ in range(SLOW_BODIES)]
    if RECORDINGS in kinds:
        found += [slow_upload(url) for _ in range(UPLOADS)]
    return found


async def noisy_stream(url: str, duration_s: float, requests: Iterator[Request]) -> list[Sample]:
    """Send one request after the other. After a refusal the pause is at most a second, whatever `Retry-After`
    says. A request that is not answered at the end is abandoned."""
    samples: list[Sample] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + duration_s
    for request in requests:
        left_s = end - loop.time()
        if left_s <= 0:
            break
        [sample] = await closed_loop(url, [request], 1, limit_s=left_s)
        samples.append(sample)
        if not sample.ok:
            await asyncio.sleep(1)
    return samples


def noisy_requests(chance: random.Random, kinds: Collection[str]) -> Iterator[Request]:
    shares = {kind: share for kind, share in GENERATED.items() if kind in kinds}
    while True:
        text = f"Noise {chance.random()}."
        [kind] = chance.choices(list(shares), list(shares.values()))
        yield of_tenant(NOISY_KEY, chat_request(MODEL, text, TOKENS, **asked_as(kind, chance)))


def asked_as(kind: str, chance: random.Random) -> dict[str, Any]:
    """The additional fields of a request of this kind."""
    if kind == "answers":
        return {"n": chance.choice([4, 8, 14, 400])}
    if kind == "schemas":
        return {"structured_outputs": {"json": chance.choice([long_schema(), json.dumps(deep_schema(300))])}}
    return {}


def joined_requests() -> Iterator[Request]:
    """Requests that are the same for all readers for ``ROUND_S``: requests in flight at once share one
    answer."""
    while True:
        text = f"One long answer for all, number {time.monotonic() // ROUND_S:.0f}."
        yield of_tenant(NOISY_KEY, chat_request(LONG_MODEL, text, LONG_TOKENS))


def list_of_texts(chance: random.Random) -> Request:
    texts = [question(chance.getrandbits(48)) for _ in range(LIST_TEXTS)]
    body = json.dumps({"model": EMBEDDER_ID, "input": texts, "encoding_format": "base64"}).encode()
    return of_tenant(NOISY_KEY, Request("/v1/embeddings", body))


def long_schema() -> dict[str, Any]:
    fields = {f"field {number}": {"type": "string", "description": "x" * 400} for number in range(120)}
    return {"type": "object", "properties": fields}


def deep_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


async def half_open(url: str) -> None:
    """Send a head that never ends; start again when the connection is closed."""
    await _hold(url, b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-padding: ", b"x")


async def slow_body(url: str) -> None:
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {NOISY_KEY}\r\ncontent-length: 1000\r\n\r\n"
    )
    await _hold(url, head.encode(), b" ")


async def slow_upload(url: str) -> None:
    head = (
        f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nhost: localhost\r\n"
        "content-type: multipart/form-data; boundary=noise\r\n"
        f"authorization: Bearer {NOISY_KEY}\r\ncontent-length: {UPLOAD_BYTES}\r\n\r\n"
    )
    await _hold(url, head.encode(), UPLOAD_DRIP)


async def _hold(url: str, begin: bytes, drip: bytes) -> None:
    address = urlsplit(url)
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                writer.write(begin)
                while not reader.at_eof():
                    writer.write(drip)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(4096), DRIP_S)
            finally:
                writer.close()
        await asyncio.sleep(0.2)


def all_figures(runs: Sequence[Run]) -> list[Figure]:
    return [
        Figure("quiet tenant's TTFT p95 over alone", "×", tuple(map(slower, runs)), at_most(1.2)),
        Figure("quiet tenant's errors", "", tuple(float(errors(run.beside)) for run in runs), at_most(0)),
        Figure("quiet tenant's TTFT p95, alone", "ms", tuple(ttft_p95_ms(run.alone) for run in runs)),
        Figure("quiet tenant's TTFT p95, beside", "ms", tuple(ttft_p95_ms(run.beside) for run in runs)),
        Figure("noisy tenant's answers", "", tuple(float(sum(s.ok for s in run.noise)) for run in runs)),
        Figure("noisy tenant's refusals", "", tuple(float(errors(run.noise)) for run in runs)),
    ]


def slower(run: Run) -> float:
    return ttft_p95_ms(run.beside) / ttft_p95_ms(run.alone)


def ttft_p95_ms(samples: Sequence[Sample]) -> float:
    return percentile((s.ttft_s * 1000 for s in samples if s.ok and s.ttft_s is not None), 95)


def errors(samples: Sequence[Sample]) -> int:
    """Failures of the quiet tenant. Refusals count, because it asks for less than its share."""
    return sum(not sample.ok for sample in samples)
