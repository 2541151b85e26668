"""What a cluster of two nodes loses when its head, a gateway, the cache or Qdrant is killed under streams.

The head has Ray's control store, which is on disk, and Serve's controller; all that is on the path of a
request is on the other node, whose clients are measured. It comes back after a while at the same address.
The others are killed one after the other, with an engine and a gateway on each node. Qdrant is its REST
shape in a process of its own, which is started again a second after its end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp

from benchmarks.cluster import RETURN_LIMIT_S, until_on
from benchmarks.kills import GATEWAY_LIMIT_S, Kill, Part, figures_of_kills, in_turn, outage_s
from benchmarks.load import run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint
from benchmarks.peers.endpoint import ROOT, as_admin, environment
from benchmarks.peers.nodes_app import ENGINE, MODEL
from benchmarks.peers.nodes_client import DONE, NodeClient
from benchmarks.peers.processes import end, scratch_folder, spawn
from benchmarks.peers.ray_nodes import HEAD, WORKER, Place, RayNodes, ray_nodes
from benchmarks.table import Figure, at_most, write_report
from deployments.launcher.ports import free_port

STREAMS = 64
TOKENS, ITL_MS = 100, 100.0  # ten seconds an answer
PROBE_TOKENS, PROBE_PERIOD_S, PROBE_LIMIT_S = 2, 0.2, 30.0
BEFORE_S, AWAY_S, BACK_S = 12.0, 15.0, 30.0
"""Seconds of load before the head is killed, until it starts again, and after that."""

SERVED_AGAIN_S = 10.0
EMBEDDER = {"id": "words", "source": "sentence-transformers/all-MiniLM-L6-v2", "dtype": "int8"}
PARTS = (
    Part("two nodes: one gateway of two", "Gateway", GATEWAY_LIMIT_S, first_only=True),
    Part("two nodes: cache", "SemanticCache", is_on_the_path=False),
    Part("two nodes: Qdrant", "qdrant_rest", is_on_the_path=False),
)
AGAIN = 'while true; do "$@"; sleep 1; done'


@dataclass(frozen=True)
class Asked:
    """One request: when it began and ended, and whether its stream was whole, or why not."""

    began: float
    ended: float
    is_whole: bool
    why: str = ""


@dataclass(frozen=True)
class HeadDeath:
    """Times are those of one clock. ``until``: when the load stopped."""

    killed_at: float
    until: float
    streams: Sequence[Asked]
    probes: Sequence[Asked]

    @property
    def running(self) -> list[Asked]:
        """The streams that ran when the head was killed."""
        return [each for each in self.streams if each.began < self.killed_at < each.ended]

    @property
    def outage_s(self) -> float:
        """The longest time without an answer to a new request, less the usual one."""
        answered = [each.ended for each in self.probes if each.is_whole]
        return outage_s(answered, self.killed_at, self.until)


def run(options: Options) -> list[Figure]:
    deaths, kills = [], []
    for _ in range(options.repeats):
        deaths.append(head_killed())
        kills.append(parts_killed())
    figures = figures_of_deaths(deaths)
    figures += [each for same in zip(*kills, strict=True) for each in figures_of_kills(same)]
    about = {
        "nodes": "2, on one machine; for the head's death its storage is rocksdb and it has no CPUs",
        "streams": f"{STREAMS} of {TOKENS} tokens, one every {ITL_MS:g} ms",
        "head": f"away for {AWAY_S:g} s, watched for {BACK_S:g} s after its new start",
        "kill": "SIGKILL; of the head to every process at once",
    }
    for death in deaths:
        for each in (*death.streams, *death.probes):
            if not each.is_whole:
                at, after = each.began - death.killed_at, each.ended - each.began
                print(f"failed, begun {at:.2f} s after the kill, ended {after:.2f} s later: {each.why}")
    write_report(options.out, "cluster_kills", figures, about=about)
    return figures


def figures_of_deaths(deaths: Sequence[HeadDeath]) -> list[Figure]:
    """What fails is a sum: a median would ignore one repeat of three."""
    running = [each for death in deaths for each in death.running]
    others = [each for death in deaths for each in death.streams if each not in death.running]
    probes = [each for death in deaths for each in death.probes]
    outages = tuple(death.outage_s for death in deaths)
    return [
        Figure("head killed: running streams, all repeats", "", (float(len(running)),)),
        Figure("head killed: failed running streams, all repeats", "", (failed(running),), at_most(0)),
        Figure("head killed: other failed streams, all repeats", "", (failed(others),), at_most(0)),
        Figure("head killed: new requests, all repeats", "", (float(len(probes)),)),
        Figure("head killed: failed new requests, all repeats", "", (failed(probes),)),
        Figure("head killed: no new request was answered for", "s", outages, at_most(SERVED_AGAIN_S)),
    ]


def failed(asked: Sequence[Asked]) -> float:
    return float(sum(not each.is_whole for each in asked))


def head_killed() -> HeadDeath:
    with scratch_folder() as folder:
        storage = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder)}
        with ray_nodes(Place(HEAD), Place(WORKER, cpus=8, resources={ENGINE: 1}), env=storage) as nodes:
            nodes.deploy(
                model={"drain_timeout_s": 0.0},
                sim={"model": MODEL, "itl_ms": ITL_MS, "slots": 4 * STREAMS},
                settings={"responses": {"enabled": False}},
                proxies="EveryNode",
            )
            return run_fast(under_streams(nodes))


async def under_streams(nodes: RayNodes) -> HeadDeath:
    client, done = NodeClient(nodes, WORKER), asyncio.Event()
    head = nodes.nodes[HEAD]
    await until_served(client)
    streams = asyncio.gather(*(one_after_the_other(client, number, done) for number in range(STREAMS)))
    probes = asyncio.ensure_future(probing(client, done))
    await asyncio.sleep(BEFORE_S)
    killed_at = time.monotonic()
    await asyncio.to_thread(head.kill)
    await asyncio.sleep(AWAY_S)
    await asyncio.to_thread(head.start)
    await asyncio.sleep(BACK_S)
    done.set()
    until = time.monotonic()
    found, asked = await asyncio.gather(streams, probes)
    return HeadDeath(killed_at, until, [each for some in found for each in some], asked)


async def until_served(client: NodeClient) -> None:
    """Wait until the engine may serve."""
    async with asyncio.timeout(RETURN_LIMIT_S):
        while True:
            if await client.members():
                return
            await asyncio.sleep(PROBE_PERIOD_S)


async def one_after_the_other(client: NodeClient, number: int, done: asyncio.Event) -> list[Asked]:
    """Streams, one at a time; the last one is read to its end."""
    asked: list[Asked] = []
    while not done.is_set():
        asked.append(await ask(client, f"Stream {number}, answer {len(asked)}.", TOKENS))
        if not asked[-1].is_whole:
            await asyncio.sleep(1.0)
    return asked


async def probing(client: NodeClient, done: asyncio.Event) -> list[Asked]:
    """New requests by a clock, however long each takes."""
    asked: list[asyncio.Future[Asked]] = []
    while not done.is_set():
        asked.append(asyncio.ensure_future(ask(client, f"New request {len(asked)}.", PROBE_TOKENS)))
        await asyncio.sleep(PROBE_PERIOD_S)
    return [await each for each in asked]


async def ask(client: NodeClient, question: str, tokens: int) -> Asked:
    """It begins on a connection to the living node, whose choice is the work of this client alone."""
    began, said, why = time.monotonic(), b"", ""
    try:
        connection = await client.connected()
        began = time.monotonic()
        async with asyncio.timeout(PROBE_LIMIT_S + tokens * ITL_MS / 1000):
            said = await client.chat(question, tokens, connection)
    except (OSError, TimeoutError) as error:
        why = repr(error)
    ended = time.monotonic()
    if DONE in said:
        return Asked(began, ended, is_whole=True)
    return Asked(began, ended, is_whole=False, why=why or f"{said[:200]!r} … {said[-200:]!r}")


def parts_killed() -> list[Kill]:
    places = [Place(address, cpus=8, resources={ENGINE: 1}) for address in (HEAD, WORKER)]
    with qdrant() as (url, pid), ray_nodes(*places) as nodes:
        nodes.deploy(
            model={"replicas": 2, "drain_timeout_s": 0.0},
            sim={"model": MODEL, "itl_ms": ITL_MS, "slots": 4 * STREAMS},
            settings={
                "responses": {"enabled": False},
                "gateway": {"replicas": 2},
                "embedder": EMBEDDER,
                "cache": {"race": False, "store": "qdrant", "qdrant": {"url": url}},
            },
        )
        roots = tuple(node.pids[0] for node in nodes.nodes.values())
        return asyncio.run(kills_in_turn(Endpoint("Promptly", nodes.url, MODEL, (*roots, pid))))


async def kills_in_turn(endpoint: Endpoint) -> list[Kill]:
    async with aiohttp.ClientSession(endpoint.url, headers=as_admin()) as http:
        await until_on(http, 2)
    return await in_turn(endpoint, PARTS)


@contextmanager
def qdrant() -> Iterator[tuple[str, int]]:
    """Its URL, and the process above it, which starts it again whenever it has ended."""
    port = free_port()
    with scratch_folder() as folder:
        server = [sys.executable, "-m", "support.qdrant_rest", str(port), str(folder / "data")]
        env = environment()
        env["PYTHONPATH"] = f"{ROOT / 'tests'}:{ROOT}:{env['PYTHONPATH']}"  # where the stand-in is
        process = spawn(["sh", "-c", AGAIN, "sh", *server], env, folder / "log")
        try:
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            end(process)
