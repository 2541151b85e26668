"""HAProxy, a gateway, Serve's controller and the cache are killed in turn (SIGKILL) while 64 streams run.

The benchmark measures how long new requests are not served, and how each stream ends: whole, with an error
event, or cut.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import aiohttp

from benchmarks.engines import scripted_engine
from benchmarks.idle import name_of
from benchmarks.load import Request, chat_request
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.table import Figure, at_most, write_report
from deployments.launcher.processes import descendants

MODEL = "scripted"
STREAMS = 64
TOKENS, ITL_MS = 100, 100.0  # ten seconds an answer
BEFORE_S = 2.0
"""Seconds that streams run before the kill."""

PROBE_PERIOD_S, PROBE_LIMIT_S = 0.05, 30.0
WATCHED_S, SETTLED_S = 20.0, 60.0
"""Seconds for which new requests are watched after a kill, and within which the part must be back."""

WHOLE, ERROR_EVENT, CUT = "whole", "ended by an error event", "cut"
GATEWAY_LIMIT_S, LIMIT_S = 5.0, 3.0


@dataclass(frozen=True)
class Part:
    """A part of the application. ``process`` is a piece of the command line of the processes that are killed,
    or the program's name."""

    name: str
    process: str
    limit_s: float = LIMIT_S
    first_only: bool = False
    is_on_the_path: bool = True
    """Whether open streams pass through the part, so that they are cut when it is killed."""


HAPROXY = Part("HAProxy", "haproxy")
GATEWAY = Part("one gateway of two", "Gateway", GATEWAY_LIMIT_S, first_only=True)
CONTROLLER = Part("controller", "ServeController", is_on_the_path=False)
PARTS = (
    HAPROXY,
    GATEWAY,
    CONTROLLER,
    Part("cache", "SemanticCache", is_on_the_path=False),
)
ALONE = (Part("the only gateway", "Gateway", GATEWAY_LIMIT_S),)


@dataclass(frozen=True)
class Kill:
    """``outage_s``: the longest time in which no new request was answered, minus the usual time between
    answers."""

    part: Part
    outage_s: float
    failed: int
    endings: Counter[str]


def run(options: Options) -> list[Figure]:
    repeats = [measured(2, PARTS) + measured(1, ALONE) for _ in range(options.repeats)]
    figures = [each for kills in zip(*repeats, strict=True) for each in figures_of_kills(kills)]
    about = {
        "streams": f"{STREAMS} of {TOKENS} tokens, one every {ITL_MS:g} ms",
        "new requests": f"one every {PROBE_PERIOD_S * 1000:g} ms, each on a new connection",
    }
    write_report(options.out, "kills", figures, about=about)
    return figures


def figures_of_kills(kills: Sequence[Kill]) -> list[Figure]:
    """``kills`` are those of one part, one per repeat. If no stream passes through the part, its kill may cut
    none."""
    part = kills[0].part
    name = f"{part.name} killed"
    outages = tuple(each.outage_s for each in kills)
    figures = [
        Figure(f"{name}: outage", "s", outages, at_most(part.limit_s)),
        Figure(f"{name}: failed new requests", "", tuple(float(each.failed) for each in kills)),
    ]
    for ending in (WHOLE, ERROR_EVENT, CUT):
        values = tuple(float(each.endings[ending]) for each in kills)
        figures.append(Figure(f"{name}: streams {ending}", "", values))
    if not part.is_on_the_path:  # a sum, because a median ignores one repeat of three
        cut = float(sum(each.endings[CUT] for each in kills))
        figures.append(Figure(f"{name}: streams cut, all repeats together", "", (cut,), at_most(0)))
    return figures


def measured(gateways: int, parts: Sequence[Part]) -> list[Kill]:
    embedder = {"id": "words", "source": "sentence-transformers/all-MiniLM-L6-v2", "dtype": "int8"}
    with scripted_engine(MODEL, TOKENS, ITL_MS, slots=4 * STREAMS) as engine:
        upstream = {"name": "engine", "url": f"{engine.url}/v1", "kind": "vllm", "max_requests": 4 * STREAMS}
        settings = {
            "models": [{"id": MODEL, "upstreams": [upstream]}],
            "embedder": embedder,
            "cache": {"race": False},
            "gateway": {"replicas": gateways},
        }
        with promptly(settings) as endpoint:
            return asyncio.run(in_turn(endpoint, parts))


async def in_turn(endpoint: Endpoint, parts: Sequence[Part]) -> list[Kill]:
    kills = []
    for part in parts:
        kills.append(await under_streams(endpoint, part))
        await back(endpoint, part)
    return kills


async def under_streams(endpoint: Endpoint, part: Part) -> Kill:
    requests = [
        chat_request(endpoint.model, f"Stream {number} beside {part.name}.", TOKENS)
        for number in range(STREAMS)
    ]
    no_limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(endpoint.url, connector=no_limit) as http:
        streams = [asyncio.ensure_future(ending(http, request)) for request in requests]
        answered: list[float] = []
        failed: list[float] = []
        probing = asyncio.ensure_future(probe(endpoint, part, answered, failed))
        await asyncio.sleep(BEFORE_S)
        killed_at = time.monotonic()
        kill(endpoint, part)
        endings = Counter(await asyncio.gather(*streams))
        await asyncio.sleep(max(0.0, killed_at + WATCHED_S - time.monotonic()))
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
    return Kill(part, outage_s(answered, killed_at, time.monotonic()), len(failed), endings)


def outage_s(answered: Sequence[float], killed_at: float, until: float) -> float:
    """The longest time between two answers around and after the kill, minus the longest one before."""
    times = sorted(answered)
    before = [at for at in times if at < killed_at]
    after = [at for at in times if at >= killed_at]
    usual = longest_gap(before)
    return max(0.0, longest_gap([*before[-1:], *after, until]) - usual)


def longest_gap(times: Sequence[float]) -> float:
    return max((late - early for early, late in pairwise(times)), default=0.0)


async def probe(endpoint: Endpoint, part: Part, answered: list[float], failed: list[float]) -> None:
    """Send requests of new clients, each on a new connection; a waiting client does not delay the next."""
    asking: set[asyncio.Task[None]] = set()
    number = 0
    try:
        while True:
            number += 1
            request = chat_request(endpoint.model, f"New {number} beside {part.name}.", 1, stream=False)
            task = asyncio.ensure_future(ask(endpoint.url, request, answered, failed))
            asking.add(task)
            task.add_done_callback(asking.discard)
            await asyncio.sleep(PROBE_PERIOD_S)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def ask(url: str, request: Request, answered: list[float], failed: list[float]) -> None:
    limit = aiohttp.ClientTimeout(total=PROBE_LIMIT_S)
    try:
        async with aiohttp.ClientSession(url, timeout=limit) as http, post(http, request) as response:
            await response.read()
            (answered if response.status == 200 else failed).append(time.monotonic())
    except (aiohttp.ClientError, TimeoutError, OSError):
        failed.append(time.monotonic())


def post(http: aiohttp.ClientSession, request: Request) -> aiohttp.client._RequestContextManager:
    headers = {"content-type": "application/json"}
    return http.post(request.path, data=request.body, headers=headers)


async def ending(http: aiohttp.ClientSession, request: Request) -> str:
    """How a stream ended for its client."""
    body = b""
    try:
        async with post(http, request) as response:
            async for part in response.content.iter_any():
                body = (body + part)[-4096:]
    except (aiohttp.ClientError, TimeoutError, OSError):
        return CUT
    if body.rstrip().endswith(b"[DONE]"):
        return WHOLE
    return ERROR_EVENT if b'data: {"error"' in body else CUT


def kill(endpoint: Endpoint, part: Part) -> None:
    pids = processes(endpoint, part)
    if not pids:
        raise RuntimeError(f"there is no process of {part.name}")
    for pid in pids[:1] if part.first_only else pids:
        os.kill(pid, signal.SIGKILL)


def processes(endpoint: Endpoint, part: Part) -> list[int]:
    tree = [pid for root in endpoint.pids for pid in descendants(root)]
    if part.process == "haproxy":  # not the Ray actor that supervises it
        return [pid for pid in tree if program_of(pid) == "haproxy"]
    return [pid for pid in tree if part.process in name_of(pid)]


def program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


async def back(endpoint: Endpoint, part: Part) -> None:
    """Wait until the part runs again and the application is ready, for the next kill."""
    wanted = 2 if part.first_only else 1
    deadline = time.monotonic() + SETTLED_S
    async with aiohttp.ClientSession(endpoint.url) as http:
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            try:
                async with http.get("/ready") as response:
                    if response.status == 200 and len(processes(endpoint, part)) >= wanted:
                        return
            except (aiohttp.ClientError, OSError):
                continue
    raise RuntimeError(f"{part.name} was not back within {SETTLED_S:g} s")
