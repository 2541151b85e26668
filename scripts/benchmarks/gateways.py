"""One gateway of two is killed (SIGKILL) while 500 streams run: its own clients are cut off, and the other
gateway's clients notice nothing. Clients connect through HAProxy, which learns of the loss while it passes on
the other streams."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from dataclasses import dataclass

import aiohttp
import psutil

from benchmarks.engines import scripted_engine
from benchmarks.kills import BEFORE_S, CUT, ERROR_EVENT, WHOLE, Part, back, ending, processes
from benchmarks.load import chat_request
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.table import Figure, at_least, at_most, write_report

MODEL = "scripted"
STREAMS = 500
TOKENS, ITL_MS = 40, 500.0  # twenty seconds an answer; few tokens, so that two cores carry them
GATEWAYS = Part("one gateway of two", "Gateway", first_only=True)
BEGIN_LIMIT_S = 60.0
LEARN_S = 5.0
"""The time until HAProxy, which learns of replicas from Serve's controller, knows both gateways."""


@dataclass(frozen=True)
class Killed:
    """``streams`` is the number of streams that the killed gateway had."""

    streams: int
    endings: Counter[str]

    @property
    def others_failed(self) -> int:
        """Streams that failed although they were not the killed gateway's."""
        return max(0, self.endings[CUT] - self.streams) + self.endings[ERROR_EVENT]


def run(options: Options) -> list[Figure]:
    repeats = [measured() for _ in range(options.repeats)]
    others = tuple(float(each.others_failed) for each in repeats)
    held = tuple(float(STREAMS - each.streams) for each in repeats)
    figures = [
        Figure("streams of the other gateway", "", held, at_least(1)),  # else the last figure means nothing
        Figure("streams of the killed gateway", "", tuple(float(each.streams) for each in repeats)),
        *(
            Figure(f"streams {how}", "", tuple(float(each.endings[how]) for each in repeats))
            for how in (WHOLE, ERROR_EVENT, CUT)
        ),
        Figure("failed streams of the other gateway, all repeats together", "", (sum(others),), at_most(0)),
    ]
    about = {"streams": f"{STREAMS} of {TOKENS} tokens, one every {ITL_MS:g} ms", "gateways": "2"}
    write_report(options.out, "gateways", figures, about=about)
    return figures


def measured() -> Killed:
    with scripted_engine(MODEL, TOKENS, ITL_MS, slots=2 * STREAMS) as engine:
        upstream = {"name": "engine", "url": f"{engine.url}/v1", "kind": "vllm", "max_requests": 2 * STREAMS}
        settings = {
            "models": [{"id": MODEL, "upstreams": [upstream]}],
            "gateway": {"replicas": 2},
            "proxy": {"max_connections_per_source": 0},
        }
        with promptly(settings) as endpoint:
            return asyncio.run(one_killed(endpoint, engine.url))


async def one_killed(endpoint: Endpoint, engine: str) -> Killed:
    await back(endpoint, GATEWAYS)  # wait until both gateways have started
    await asyncio.sleep(LEARN_S)
    requests = [chat_request(MODEL, f"Stream {number}.", TOKENS) for number in range(STREAMS)]
    no_limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(endpoint.url, connector=no_limit) as http:
        streams = [asyncio.ensure_future(ending(http, request)) for request in requests]
        await all_run(engine)
        await asyncio.sleep(BEFORE_S)
        victim = processes(endpoint, GATEWAYS)[0]
        held = streams_at(victim)
        os.kill(victim, signal.SIGKILL)
        return Killed(held, Counter(await asyncio.gather(*streams)))


async def all_run(engine: str) -> None:
    """Wait until every stream has arrived at the engine."""
    async with aiohttp.ClientSession(engine) as http, asyncio.timeout(BEGIN_LIMIT_S):
        while True:
            async with http.get("/sim/stats") as response:
                if (await response.json())["running"] == STREAMS:
                    return
            await asyncio.sleep(0.1)


def streams_at(gateway: int) -> int:
    """The number of connections from the gateway to the engine; each carries one stream."""
    pairs = Counter(
        connection.raddr
        for connection in psutil.Process(gateway).net_connections(kind="tcp")
        if connection.status == psutil.CONN_ESTABLISHED and connection.raddr
    )
    return max(pairs.values(), default=0)
