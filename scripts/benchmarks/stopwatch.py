"""Timing side channels: can one tenant tell from its own response times what another tenant asked?

In each of twelve probes the other tenant sends a request and then the prober sends a timed one: either the
same as the other tenant's ("asked"), or a different one of its kind ("not asked"). The two conditions follow
each other in pairs, in alternating order, and every text is new. A probe whose times differ is a leak.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, product
from statistics import median
from typing import Any

import aiohttp
from cache_lab.cosines import EMBEDDER

from benchmarks.engines import scripted_process
from benchmarks.layer import settings_for
from benchmarks.load import run_fast
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.significance import median_difference, paired_p
from benchmarks.table import Figure, at_least, write_report
from serve_app.evaluation.statistics import holm

MODEL = "scripted"
EMBEDDER_ID = "embedder"
OTHER, PROBER = "other", "prober"
SAMPLES, QUICK_SAMPLES = 200, 10
SIGNIFICANT = 0.01
KEYS = "STOPWATCH_KEYS"
ENDINGS = ("storm", "man", "land", "light", "fall", "side", "")
SHARED_WORDS = tuple("".join(pair) for pair in product(("sand", "rain", "wood", "fire", "snow"), ENDINGS))
"""The words of which all texts are made."""

DOCUMENT_WORDS, QUESTION_WORDS = 400, 9
"""The numbers of words are fixed, so that no tokenizer sees more of one text than of another of its kind."""

STEP = re.compile(r"([a-z-]+);dur=([0-9.]+)")


@dataclass(frozen=True)
class Timed:
    """Milliseconds from sending to the first bytes of the body and to the last, and the steps of
    ``Server-Timing``."""

    first_ms: float
    total_ms: float
    steps: Mapping[str, float]


@dataclass(frozen=True)
class Asking:
    """One request."""

    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]


Ask = Callable[[int], Asking]
"""Makes the request about the text of a given number; another number gives another text."""


@dataclass(frozen=True)
class Probe:
    """One probe. The prober's request is timed with ``read``, after the other tenant's request or, with
    ``together``, beside it."""

    name: str
    other: Ask
    prober: Ask
    read: Callable[[Timed], float]
    together: bool = False


@dataclass(frozen=True)
class Finding:
    """One probe's pairs (asked, not asked) in milliseconds; ``p`` is corrected for the number of probes."""

    probe: str
    pairs: Sequence[tuple[float, float]]
    p: float

    @property
    def difference_ms(self) -> float:
        return median_difference(self.pairs)

    @property
    def tells(self) -> bool:
        return self.p <= SIGNIFICANT

    def __str__(self) -> str:
        asked, unasked = (median(side) for side in zip(*self.pairs, strict=True))
        return f"{self.probe}: {asked:.2f} ms asked, {unasked:.2f} ms not, p = {self.p:.3g}"


class Tenant:
    """One tenant's client, which keeps its connection."""

    def __init__(self, http: aiohttp.ClientSession, key: str) -> None:
        self._http = http
        self._headers = {"authorization": f"Bearer {key}"}

    async def ask(self, asking: Asking) -> Timed:
        """Raises: RuntimeError: the status is not 200."""
        began = time.perf_counter()
        headers = {**self._headers, **asking.headers}
        async with self._http.post(asking.path, json=asking.body, headers=headers) as response:
            body = await response.content.readany()
            first = time.perf_counter()
            body += await response.read()
            ended = time.perf_counter()
            if response.status != 200:
                raise RuntimeError(f"{asking.path}: {response.status}: {body[:300]!r}")
            steps = STEP.findall(response.headers.get("server-timing", ""))
        return Timed(1000 * (first - began), 1000 * (ended - began), {name: float(ms) for name, ms in steps})


# ---- what is asked ---------------------------------------------------------------------------------------


def words(number: int, length: int) -> str:
    return " ".join(random.Random(number).choices(SHARED_WORDS, k=length))


def document(number: int) -> str:
    return words(number, DOCUMENT_WORDS)


def question(number: int) -> str:
    return words(number, QUESTION_WORDS)


def chat(model: str, *texts: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Asking:
    messages = [{"role": "user", "content": text} for text in texts]
    body = {"model": model, "messages": messages, "max_tokens": 4, **fields}
    return Asking("/v1/chat/completions", body, headers or {})


def completion(model: str, text: str) -> Asking:
    body = {"model": model, "prompt": text, "max_tokens": 4, "stream": True}
    return Asking("/v1/completions", body, {})


def embeddings(model: str, *texts: str) -> Asking:
    return Asking("/v1/embeddings", {"model": model, "input": list(texts)}, {})


def first(timed: Timed) -> float:
    return timed.first_ms


def total(timed: Timed) -> float:
    return timed.total_ms


def reported_ms(timed: Timed) -> float:
    """The sum of all steps that the server reported."""
    return sum(timed.steps.values())


def probes(model: str = MODEL, embedder: str = EMBEDDER_ID) -> tuple[Probe, ...]:
    """Twelve probes for traces of another tenant's request: in the engine's prefix cache, in routing, in the
    embedder's memory, in the cache's tiers, in flight."""

    def long(number: int, **fields: Any) -> Asking:
        return chat(model, document(number), **fields)

    def follow_up(number: int) -> Asking:
        return chat(model, document(number), question(secrets.randbits(48)), stream=True)

    def short(number: int, **fields: Any) -> Asking:
        return chat(model, question(number), **fields)

    def reordered(number: int) -> Asking:
        return chat(model, " ".join(sorted(question(number).split())), stream=True)

    def salted(number: int) -> Asking:
        return long(number, stream=True, cache_salt="common")

    def in_session(number: int) -> Asking:
        return long(number, stream=True, headers={"x-session-id": f"session-{number}"})

    def streamed(number: int) -> Asking:
        return long(number, stream=True)

    def completed(number: int) -> Asking:
        return completion(model, document(number))

    def one(number: int) -> Asking:
        return embeddings(embedder, question(number))

    def several(number: int) -> Asking:
        return embeddings(embedder, question(number), "a river", "a mountain")

    return (
        Probe("the same long prompt, first token", streamed, streamed, first),
        Probe("the same long prompt, whole answer", long, long, total),
        Probe("another question about the same document", streamed, follow_up, first),
        Probe("the same text completion", completed, completed, first),
        Probe("the same long prompt under the same salt", salted, salted, first),
        Probe("the same long prompt in a session of the same name", in_session, in_session, first),
        Probe("the same short question, whole answer", short, short, total),
        Probe("the same words in another order", short, reordered, total),
        Probe("one text's embedding", one, one, total),
        Probe("an embedding among others", one, several, total),
        Probe("what Server-Timing says of a short question", short, short, reported_ms),
        Probe("the same request while the other's runs", streamed, streamed, total, together=True),
    )


# ---- measuring -------------------------------------------------------------------------------------------


@asynccontextmanager
async def tenants(url: str, keys: Mapping[str, str]) -> Any:
    """The other tenant and the prober, each with its own connections."""
    async with aiohttp.ClientSession(url) as one, aiohttp.ClientSession(url) as two:
        yield Tenant(one, keys[OTHER]), Tenant(two, keys[PROBER])


async def measure(
    probe: Probe, other: Tenant, prober: Tenant, samples: int, numbers: Iterator[int]
) -> list[tuple[float, float]]:
    """Pairs of milliseconds: after the same request of the other tenant, and after a different one."""

    async def once(*, asked: bool) -> float:
        theirs = next(numbers)
        mine = theirs if asked else next(numbers)
        if probe.together:
            running = asyncio.ensure_future(other.ask(probe.other(theirs)))
            await asyncio.sleep(0)
            timed = await prober.ask(probe.prober(mine))
            await running
        else:
            await other.ask(probe.other(theirs))
            timed = await prober.ask(probe.prober(mine))
        return probe.read(timed)

    await once(asked=False)  # opens connections and runs all code once
    pairs = []
    for number in range(samples):
        asked_first = number % 2 == 0
        one, two = await once(asked=asked_first), await once(asked=not asked_first)
        pairs.append((one, two) if asked_first else (two, one))
    return pairs


async def findings(url: str, keys: Mapping[str, str], chosen: Sequence[Probe], samples: int) -> list[Finding]:
    """Figures of all ``chosen`` probes."""
    numbers = count(secrets.randbits(40))
    async with tenants(url, keys) as (other, prober):
        found = {probe.name: await measure(probe, other, prober, samples, numbers) for probe in chosen}
    ps = holm({name: paired_p(pairs) for name, pairs in found.items()})
    return [Finding(name, pairs, ps[name]) for name, pairs in found.items()]


def run(options: Options) -> list[Figure]:
    samples = QUICK_SAMPLES if options.quick else SAMPLES
    repeats = [_repeat(samples) for _ in range(options.repeats)]
    least = tuple(min(finding.p for finding in found) for found in repeats)
    figures = [
        Figure(f"least p of 12 probes, {samples} samples each", "", least, at_least(SIGNIFICANT)),
        *(
            Figure(each[0].probe, "ms", tuple(finding.difference_ms for finding in each))
            for each in zip(*repeats, strict=True)
        ),
    ]
    about = {
        "rows in ms": "median for the other tenant's text minus median for a text that was not asked",
        "p": "Wilcoxon's signed ranks over the pairs, adjusted for twelve probes (Holm)",
        "engine": "scripted, 20 ms for 1,000 prompt tokens, prefix cache",
    }
    write_report(options.out, "stopwatch", figures, about=about)
    return figures


def _repeat(samples: int) -> list[Finding]:
    keys = {name: secrets.token_urlsafe(24) for name in (OTHER, PROBER)}
    given = ",".join(f"{name}={key}" for name, key in keys.items())
    embedder = {"id": EMBEDDER_ID, "source": EMBEDDER}
    with scripted_process(MODEL, tokens=3, itl_ms=1.0, prefill_ms_per_1k=20.0) as engine:
        settings = settings_for(engine.url, embedder=embedder, cache={}, auth={"keys_env": KEYS})
        with promptly(settings, env={KEYS: given}) as endpoint:
            return run_fast(findings(endpoint.url, keys, probes(endpoint.model), samples))
