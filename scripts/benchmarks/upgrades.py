"""A running application is changed by ``promptly apply`` while 64 streams run at any moment.

The gateways roll, then the engine's replicas, then a model is added, then ``promptly apply --back`` undoes
that. The engines are scripted, but they are replicas of a real start, behind HAProxy. A new request is sent
on a connection of its own every 50 ms.

There is room for one spare replica of the engine and not for two, so what is shown is that one is enough.
Spare are those that have a place beyond the number in the config; one that only finishes its answers has it
still. Serve starts the next replica while an old one ends, and Ray lets it wait until there is room.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.load import Request, Sample, chat_request, closed_loop, run_fast
from benchmarks.options import Options
from benchmarks.peers import PeerError
from benchmarks.peers.endpoint import environment, local_url
from benchmarks.peers.processes import scratch_folder
from benchmarks.peers.scripted_app import IMPORT_PATH, ITL_MS, TOKENS
from benchmarks.peers.supervised import PROMPTLY_LAUNCHER, serve_config, supervised
from benchmarks.table import Figure, at_most, write_report
from deployments.cli.serve_api import ServeApi, dashboard_of
from deployments.launcher.plan import MIN_LOGICAL_CPUS, logical_cores
from deployments.launcher.ports import free_port

MODEL = "scripted"
STREAMS, REPLICAS = 64, 2
BEFORE_S, POLL_S, PROBE_S = 3.0, 0.1, 0.05
APPLY_LIMIT_S = 300.0
ENGINES = "Engine:"
APPLICATION = "promptly"

PLACES = REPLICAS + 1
OTHER_CPUS = 2
"""For gateways, a spare one among them, the store of responses, and the second model, which takes one."""

Args = dict[str, Any]


def application(**changed: Any) -> Args:
    # One more is for its device.
    cpus = (max(MIN_LOGICAL_CPUS, logical_cores()) - OTHER_CPUS) / PLACES - 1
    engine = {"accelerator": "cpu", "num_cpus": cpus}
    model = {"id": MODEL, "source": MODEL, "engine": engine, "replicas": REPLICAS}
    return {"models": [{**model, **changed}]}


ROLLED_GATEWAYS = application() | {"limits": {"max_body_bytes": 900_000}}
ROLLED_ENGINE = application(revision="next") | {"limits": {"max_body_bytes": 900_000}}
SECOND = {"id": "second", "source": MODEL, "engine": {"accelerator": "cpu", "num_cpus": 0}}
ADDED = {**ROLLED_ENGINE, "models": [*ROLLED_ENGINE["models"], SECOND]}
STEPS: Mapping[str, Args | None] = {
    "gateway rolled": ROLLED_GATEWAYS,
    "engine rolled": ROLLED_ENGINE,
    "model added": ADDED,
    "model taken back": None,
}
"""The config that is applied in each step; ``None``: the one before."""


@dataclass(frozen=True)
class Upgrade:
    """One step. ``spare``: replicas of the model that was there, at most at once, beyond its number."""

    took_s: float
    streams: Sequence[Sample]
    probes: Sequence[Sample]
    spare: int


def run(options: Options) -> list[Figure]:
    repeats = [measured() for _ in range(options.repeats)]
    figures = [figure for name in STEPS for figure in figures_of_step(name, [each[name] for each in repeats])]
    about = {
        "engine": f"{REPLICAS} scripted replicas",
        "streams": f"{STREAMS} at any moment, {TOKENS} tokens of {ITL_MS:g} ms",
        "new requests": f"one every {PROBE_S * 1000:g} ms, each on a new connection",
    }
    write_report(options.out, "upgrades", figures, about=about)
    return figures


def figures_of_step(name: str, upgrades: Sequence[Upgrade]) -> list[Figure]:
    """Of the same step in each repeat. What fails is a sum: a median would ignore one repeat of three."""
    streams = float(sum(not each.ok for upgrade in upgrades for each in upgrade.streams))
    probes = float(sum(not each.ok for upgrade in upgrades for each in upgrade.probes))
    return [
        Figure(f"{name}: failed streams, all repeats", "", (streams,), at_most(0)),
        Figure(f"{name}: streams", "", tuple(float(len(each.streams)) for each in upgrades)),
        Figure(f"{name}: failed new requests, all repeats", "", (probes,), at_most(0)),
        Figure(f"{name}: new requests", "", tuple(float(len(each.probes)) for each in upgrades)),
        Figure(f"{name}: spare replicas at once", "", tuple(float(each.spare) for each in upgrades)),
        Figure(f"{name}: until it was done", "s", tuple(each.took_s for each in upgrades)),
    ]


def measured() -> dict[str, Upgrade]:
    with started() as (url, folder, variables):
        api = ServeApi(*dashboard_of(variables))
        upgrades = {}
        for name, args in STEPS.items():
            command = [sys.executable, "-m", "deployments.cli", "apply"]
            command += ["--back"] if args is None else [str(written(folder, url, args))]
            upgrades[name] = run_fast(under_streams(url, command, variables, api))
        return upgrades


@contextmanager
def started() -> Iterator[tuple[str, Path, Mapping[str, str]]]:
    """A start: its URL, a folder, and variables for commands."""
    port = free_port()
    with scratch_folder() as folder:
        env = environment(XDG_CACHE_HOME=str(folder / "cache"))
        config = served(application(), port, folder)
        with supervised("Promptly", PROMPTLY_LAUNCHER, config, env) as start:
            yield local_url(port), folder, {**env, **start.variables}


def served(args: Args, port: int, folder: Path) -> Mapping[str, Any]:
    args = {**args, "responses": {"path": str(folder / "responses")}}
    return serve_config(APPLICATION, IMPORT_PATH, args, port)


def written(folder: Path, url: str, args: Args) -> Path:
    file = folder / "next.yaml"
    port = int(url.rpartition(":")[2])
    file.write_text(yaml.safe_dump(served(args, port, folder), sort_keys=False), encoding="utf-8")
    return file


async def under_streams(
    url: str, command: Sequence[str], variables: Mapping[str, str], api: ServeApi
) -> Upgrade:
    """Run the command in the middle of the load. Raises: PeerError: it failed."""
    done = asyncio.Event()
    streams = asyncio.gather(*(stream(url, number, done) for number in range(STREAMS)))
    probes = asyncio.ensure_future(probing(url, done))
    watching = asyncio.ensure_future(asyncio.to_thread(watch, api, done))
    try:
        await asyncio.sleep(BEFORE_S)
        took_s = await asyncio.to_thread(applied, command, variables)
    finally:
        done.set()
        found, asked, spare = await asyncio.gather(streams, probes, watching)
    return Upgrade(took_s, [sample for each in found for sample in each], asked, spare)


def applied(command: Sequence[str], variables: Mapping[str, str]) -> float:
    """The seconds that it took. Raises: PeerError: it failed, or took too long, and was ended."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, env=dict(variables), capture_output=True, text=True, timeout=APPLY_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"promptly apply was not done after {APPLY_LIMIT_S:.0f} s") from error
    if done.returncode:
        raise PeerError(f"promptly apply failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.monotonic() - began


async def stream(url: str, number: int, done: asyncio.Event) -> list[Sample]:
    """One stream after the other until the upgrade is done; the last one is read to its end."""
    samples: list[Sample] = []
    while not done.is_set():
        text = f"Stream {number}, answer {len(samples)}."
        samples += await closed_loop(url, [chat_request(MODEL, text, TOKENS)], 1)
        if not samples[-1].ok:
            await asyncio.sleep(1.0)
    return samples


async def probing(url: str, done: asyncio.Event) -> list[Sample]:
    """A short answer is asked for again and again."""
    asked: list[asyncio.Future[list[Sample]]] = []
    ask = partial(closed_loop, url, streams=1)
    while not done.is_set():
        request: Request = chat_request(MODEL, f"New request {len(asked)}.", 2)
        asked.append(asyncio.ensure_future(ask([request])))
        await asyncio.sleep(PROBE_S)
    return [sample for each in asked for sample in await each]


def watch(api: ServeApi, done: asyncio.Event) -> int:
    """The most spare replicas of the first model's engine at once."""
    most = 0
    while not done.is_set():
        deployment = api.details()["applications"][APPLICATION]["deployments"].get(f"{ENGINES}{MODEL}")
        if deployment is not None:
            placed = [each for each in deployment["replicas"] if each.get("node_id") is not None]
            most = max(most, len(placed) - REPLICAS)
        time.sleep(POLL_S)
    return most
