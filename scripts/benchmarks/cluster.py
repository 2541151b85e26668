"""A Ray cluster of two nodes with an engine each: the node without the gateway is killed while streams run,
and comes back. Both nodes are on this machine, each with a loopback address of its own."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from benchmarks.load import Sample, chat_request, closed_loop, percentile
from benchmarks.options import Options
from benchmarks.peers.endpoint import as_admin
from benchmarks.peers.nodes_app import ENGINE, MODEL
from benchmarks.peers.ray_nodes import HEAD, WORKER, Place, RayNodes, ray_nodes
from benchmarks.table import Figure, at_most, write_report

STREAMS, WAVES = 64, 4
TOKENS, ITL_MS = 100, 50.0  # five seconds an answer
BEFORE_S, RETURN_LIMIT_S, POLL_S = 3.0, 120.0, 0.2


@dataclass(frozen=True)
class Death:
    """One repeat. ``returned_s``: seconds from the node's new start until its engine may serve."""

    failed: int
    answers: int
    continued: int
    longest_pause_ms: float
    returned_s: float


def run(options: Options) -> list[Figure]:
    repeats = [measured() for _ in range(options.repeats)]
    figures = [
        Figure("failed streams", "", tuple(float(each.failed) for each in repeats), at_most(0)),
        Figure("streams continued on the other node", "", tuple(float(each.continued) for each in repeats)),
        Figure("longest pause in a stream", "ms", tuple(each.longest_pause_ms for each in repeats)),
        Figure("answers", "", tuple(float(each.answers) for each in repeats)),
        Figure("node back in use after its start", "s", tuple(each.returned_s for each in repeats)),
    ]
    about = {
        "nodes": "2, one scripted engine each",
        "streams": f"{STREAMS} at any moment, {TOKENS} tokens of {ITL_MS:g} ms",
        "kill": "SIGKILL to every process of the node at once",
    }
    write_report(options.out, "cluster", figures, about=about)
    return figures


def measured() -> Death:
    places = Place(HEAD, cpus=8, resources={ENGINE: 1}), Place(WORKER, resources={ENGINE: 1})
    with ray_nodes(*places) as nodes:
        nodes.deploy(
            model={"replicas": 2, "drain_timeout_s": 0.0},
            sim={"model": MODEL, "itl_ms": ITL_MS, "slots": 2 * STREAMS},
            settings={"responses": {"enabled": False}},
        )
        return asyncio.run(under_streams(nodes))


async def under_streams(nodes: RayNodes) -> Death:
    async with aiohttp.ClientSession(nodes.url, headers=as_admin()) as http:
        await until_on(http, 2)
        requests = [chat_request(MODEL, f"Question {number}.", TOKENS) for number in range(WAVES * STREAMS)]
        load = asyncio.ensure_future(closed_loop(nodes.url, requests, STREAMS))
        await asyncio.sleep(BEFORE_S)
        await asyncio.to_thread(nodes.nodes[WORKER].kill)
        samples = await load
        began = time.monotonic()
        await asyncio.to_thread(nodes.nodes[WORKER].start)
        await until_on(http, 2)
        returned_s = time.monotonic() - began
        traffic = await _get(http, "/admin/traffic")
    return death_of(samples, traffic["continued"], returned_s)


def death_of(samples: list[Sample], continued: int, returned_s: float) -> Death:
    return Death(
        failed=sum(not sample.ok for sample in samples),
        answers=len(samples),
        continued=continued,
        longest_pause_ms=percentile((1000 * gap for sample in samples for gap in sample.gaps_s), 100),
        returned_s=returned_s,
    )


async def until_on(http: aiohttp.ClientSession, nodes: int) -> None:
    """Wait until engines on this many nodes may serve."""
    async with asyncio.timeout(RETURN_LIMIT_S):
        while True:
            members = (await _get(http, "/admin/fleet"))[MODEL]
            hosts = {urlsplit(member["url"]).hostname for member in members if member["can_serve"]}
            if len(hosts) == nodes:
                return
            await asyncio.sleep(POLL_S)


async def _get(http: aiohttp.ClientSession, path: str) -> Any:
    async with http.get(path) as response:
        return json.loads(await response.read())
