"""Do two gateways act as one application? The same load is sent through HAProxy to one gateway and to two.

Clients ask a few questions many times, so that identical requests are in flight together. The figures are how
many requests joined another one, how many the cache answered, and how many reached the engine. Whether a
request joins or is answered by the cache depends on when an earlier answer ended, so the sum of both is
compared, too. Then more clients ask at once than ``limits.max_concurrent_requests`` admits; the figure is how
many requests are at the engine then.

About half of the requests are hits and two fifths join, so both can be compared within 2 %: were each request
a toss of its own, the difference of two such counts would have a standard error of 1.4 % (hits) and 1.6 %
(joined) for one pair of runs, and 0.8 and 0.9 % for the three pairs together. It is less, because both runs
have the same requests in the same order. The figures compare the sums of all pairs. A run should take about a
minute besides its two starts.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from cache_lab.cosines import EMBEDDER, SHIPPED_DTYPE

from benchmarks.engines import scripted_engine
from benchmarks.layer import MODEL, settings_for
from benchmarks.load import Request, Sample, chat_request, closed_loop
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.table import Figure, at_most, write_report

TOKENS, ITL_MS = 10, 50.0
"""An answer takes half a second, and begins after 50 ms: later than a look-up ends."""

TIMES, STREAMS, REQUESTS = 16, 32, 10_000
"""How often each question is asked. The order is random within ``SPREAD``, so that the same questions are
asked close together."""

SPREAD = 200
"""How far a request may be moved from its position in order. With 48 nearly all but the first of a question
join it; with 200 as many come after its answer as during it."""

LIMIT, CROWD = 24, 96
SETTLE_S = 3.0
"""The time until each gateway knows the other's demand: three rounds."""

MOST_DIFFERENCE = 2.0
"""The largest allowed difference, in percent."""


@dataclass(frozen=True)
class Run:
    """``shared``: requests that joined another one or were answered by the cache; ``during``: those sent
    while an engine answered an identical one, by the clients' clock; ``at_engine``: how many requests of a
    crowd ``max_concurrent_requests`` admitted."""

    shared: float
    during: float
    joined: float
    hits: float
    asked: float
    at_engine: float


def run(options: Options) -> list[Figure]:
    share = 4 if options.quick else 1
    pairs = [
        [measured(gateways, REQUESTS // share, seed) for gateways in (1, 2)[:: options.order(seed)]][
            :: options.order(seed)
        ]
        for seed in range(options.repeats)
    ]
    figures = []
    for name, title in TITLES.items():
        unit = "" if name in COUNTS else "%"
        for place, gateways in enumerate(("one gateway", "two gateways")):
            values = tuple(getattr(pair[place], name) for pair in pairs)
            figures.append(Figure(title, unit, values, series=gateways))
        one, two = (sum(getattr(pair[place], name) for pair in pairs) for place in (0, 1))
        apart = (abs(difference(one, two)),)
        target = None if name == CLIENTS_OWN else at_most(MOST_DIFFERENCE)
        figures.append(Figure(f"{title}: difference", "%", apart, target))
    hits = sum(each.hits for pair in pairs for each in pair) / 200 / len(pairs)
    about = {
        "load": f"{REQUESTS // share} requests, {STREAMS} at once; {CROWD} at a limit of {LIMIT}",
        "standard error of the difference of hits": f"{error(hits, len(pairs) * REQUESTS // share):.1f} %",
    }
    write_report(options.out, "two_gateways", figures, about=about)
    return figures


TITLES = {
    "shared": "joined or answered by the cache",
    "during": "sent during an identical one's answer",
    "joined": "joined",
    "hits": "answered by the cache",
    "asked": "requests at the engine",
    "at_engine": "at the engine at once",
}
COUNTS = ("asked", "at_engine")
CLIENTS_OWN = "during"
"""It says how far apart the two loads are: nothing that a gateway decides."""


def difference(one: float, two: float) -> float:
    """The difference in percent of the larger number."""
    return 100 * (two - one) / max(one, two, 1e-9)


def error(share: float, count: int) -> float:
    """The standard error, in percent, of the difference of two counts that are each ``share`` of ``count``
    requests, if each request were drawn alone; ``inf`` where nothing was counted."""
    return 100 * math.sqrt(2 * (1 - share) / (share * count)) if share else math.inf


def measured(gateways: int, count: int, seed: int) -> Run:
    with scripted_engine(MODEL, TOKENS, ITL_MS, slots=4 * CROWD) as engine:
        counts, during = asyncio.run(_shared(engine.url, gateways, count, seed))
    with scripted_engine(MODEL, 400, ITL_MS, slots=4 * CROWD) as engine:
        at_engine = asyncio.run(_limited(engine.url, gateways))
    percent = 100 / sum(counts.values())
    each = {name: percent * number for name, number in counts.items()}
    joined, hits = each.get("joined", 0.0), each.get("exact", 0.0) + each.get("semantic", 0.0)
    return Run(joined + hits, percent * during, joined, hits, float(counts[MISS]), float(at_engine))


async def _shared(url: str, gateways: int, count: int, seed: int) -> tuple[Counter[str], int]:
    """The outcomes, and how many requests were sent while an identical one was answered."""
    embedder = {"id": "embedder", "source": EMBEDDER, "dtype": SHIPPED_DTYPE}
    cache = {"lookup_budget_ms": 5000.0, "race": False}
    settings = settings_for(url, embedder=embedder, cache=cache, gateway={"replicas": gateways})
    with promptly(settings) as endpoint:
        await asyncio.sleep(SETTLE_S)
        sent = requests(count, seed)
        samples = await closed_loop(endpoint.url, sent, STREAMS)
        return outcomes(samples), sent_during([request.body for request in sent], samples)


def requests(count: int, seed: int) -> list[Request]:
    """The same number of requests for each question, with equal questions near one another."""
    rng = random.Random(seed)
    order = sorted(range(count // TIMES * TIMES), key=lambda place: place + rng.uniform(0, SPREAD))
    texts = [f"What is known of the {place // TIMES}th city of the list {seed}?" for place in order]
    return [chat_request(MODEL, text, 2 * TOKENS) for text in texts]


def outcomes(samples: Sequence[Sample]) -> Counter[str]:
    """Raises: RuntimeError: a request failed."""
    failed = [sample for sample in samples if not sample.ok]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(samples)} requests failed: {failed[0].error}")
    return Counter(map(_outcome, samples))


MISS = "miss"


def _outcome(sample: Sample) -> str:
    return sample.headers.get("x-cache", MISS)


def sent_during(bodies: Sequence[bytes], samples: Sequence[Sample]) -> int:
    """How many requests were sent before the answer to the one with the same body ended that an engine
    answered."""
    pairs = list(zip(bodies, samples, strict=True))
    ends = {body: sample.ended_at for body, sample in pairs if _outcome(sample) == MISS}
    return sum(_outcome(sample) != MISS and sample.sent_at < ends.get(body, 0.0) for body, sample in pairs)


async def _limited(url: str, gateways: int) -> int:
    """How many requests of a crowd are at the engine once the gateways' shares have followed the demand."""
    limits = {"max_concurrent_requests": LIMIT}
    settings = settings_for(url, limits=limits, gateway={"replicas": gateways})
    with promptly(settings) as endpoint:
        await asyncio.sleep(SETTLE_S)
        return await _crowd(endpoint, url)


async def _crowd(endpoint: Endpoint, engine: str) -> int:
    """Run a crowd of clients, each of which asks again and again; returns how many requests are at the
    engine."""
    no_limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(endpoint.url, connector=no_limit) as http:
        clients = [asyncio.ensure_future(_let_in(http, number)) for number in range(CROWD)]
        await asyncio.sleep(2 * SETTLE_S)
        async with aiohttp.ClientSession(engine) as asking, asking.get("/sim/stats") as response:
            running = int((await response.json())["running"])
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return running


async def _let_in(http: aiohttp.ClientSession, number: int) -> None:
    request = chat_request(MODEL, f"Stream {number}.", 400)
    while True:
        async with http.post(request.path, data=request.body, headers=JSON) as response:
            if response.status == 200:
                await response.read()
        await asyncio.sleep(0.2)


JSON = {"content-type": "application/json"}
