"""Real engines are killed while they answer: failed streams, and texts that differ from undisturbed ones.

Two vLLM replicas with SmolLM2 serve four greedy streams at once. SIGKILL goes to the replica that serves most
of them: to Serve's replica, then to vLLM's process, then to a replica again. Each time Serve replaces it.

A continued answer is computed in two batches, and in the second one its beginning is part of the prompt.
Texts can only be compared where greedy text does not depend on the batch, so undisturbed texts of one stream
alone and of four at once are compared first. In bfloat16 on CPUs they are equal, so the shipped engine is
used; elsewhere float32 would be needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil

from benchmarks.failover import text_of
from benchmarks.load import Request, Sample, chat_request, closed_loop, percentile, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, PeerError, promptly
from benchmarks.peers.endpoint import as_admin, wait_for
from benchmarks.table import Figure, at_most, write_report
from benchmarks.vllm_load import MODEL, SOURCE, managed_model, model_folder

REPLICAS = 2
TOKENS = 150
SUBJECTS = ("a lighthouse keeper", "a lost key", "a river", "an old clock")  # one stream each
KILLED = ("replica", "engine_core", "replica")
KILL_AT = 0.4
"""The time of each kill, as a share of the time of undisturbed streams."""

ONE_CORE_EACH: Mapping[str, str] = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
"""Otherwise both replicas would bind their threads to the same cores."""

LOAD_LIMIT_S = 300.0
RECOVERY_LIMIT_S = 300.0
ADMIN_TIMEOUT_S = 10.0
ABOUT = {
    "engines": f"{REPLICAS} × vLLM, {SOURCE}, CPU, bfloat16, one thread each",
    "load": f"{len(SUBJECTS)} greedy streams of {TOKENS} tokens at once",
    "kills in a repeat": ", ".join(f"SIGKILL to the {part.replace('_', ' ')}" for part in KILLED),
}

NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class EngineProcesses:
    """The process ids of one replica on a CPU; the first is the other's parent."""

    replica: int
    """Serve's actor: the engine's HTTP listener and vLLM's front end."""
    engine_core: int
    """vLLM's scheduler and model."""


@dataclass(frozen=True)
class Kill:
    """The effect of one kill."""

    failed: int
    different: int
    continued: int
    longest_pause_ms: float
    recovery_s: float


def run(options: Options) -> list[Figure]:
    settings = {"models": [managed_model(ONE_CORE_EACH, replicas=REPLICAS)]}
    model_folder()
    with promptly(settings) as endpoint:
        wait_for_replicas(endpoint.url)
        expected = texts(undisturbed(endpoint, streams=1))
        measured = [_repeat(options, endpoint, expected) for _ in range(options.repeats)]
    figures = all_figures(measured)
    write_report(options.out, "vllm-failover", figures, about=ABOUT)
    return figures


Repeat = tuple[int, list[Kill]]
"""The number of undisturbed texts that differ from those of a single stream, and the kills."""


def _repeat(options: Options, endpoint: Endpoint, expected: Sequence[bytes]) -> Repeat:
    samples = undisturbed(endpoint, streams=len(SUBJECTS))
    varying = differences(samples, expected)
    after_s = KILL_AT * max(sample.ended_at for sample in samples)
    parts = KILLED[:1] if options.quick else KILLED
    return varying, [kill(endpoint, part, after_s, expected) for part in parts]


def all_figures(repeats: Sequence[Repeat]) -> list[Figure]:
    def total(field: str) -> tuple[float, ...]:
        return tuple(float(sum(getattr(each, field) for each in kills)) for _, kills in repeats)

    def worst(field: str) -> tuple[float, ...]:
        return tuple(float(max(getattr(each, field) for each in kills)) for _, kills in repeats)

    return [
        Figure("vLLM killed: failed streams", "", total("failed"), at_most(0)),
        Figure("vLLM killed: texts that differ", "", total("different"), at_most(0)),
        Figure("undisturbed texts that differ", "", tuple(float(varying) for varying, _ in repeats)),
        Figure("streams continued by the other replica", "", total("continued")),
        Figure("longest pause in a stream", "ms", worst("longest_pause_ms")),
        Figure("longest time until two replicas serve again", "s", worst("recovery_s")),
    ]


# ---- streams ---------------------------------------------------------------------------------------------


def questions(tokens: int = TOKENS) -> list[Request]:
    """Greedy requests that bypass the cache; their answers would be longer than the limit."""
    asked = [
        chat_request(MODEL, f"Tell me a long story about {subject}.", tokens, temperature=0)
        for subject in SUBJECTS
    ]
    no_store = {"cache-control": "no-store"}
    return [Request(request.path, request.body, no_store, keep_body=True) for request in asked]


def undisturbed(endpoint: Endpoint, streams: int, tokens: int = TOKENS) -> list[Sample]:
    """Raises: PeerError: a stream failed although nothing was killed."""
    samples = run_fast(closed_loop(endpoint.url, questions(tokens), streams, limit_s=LOAD_LIMIT_S))
    if errors := [sample.error for sample in samples if not sample.ok]:
        raise PeerError(f"undisturbed streams failed: {errors}")
    return samples


def texts(samples: Sequence[Sample]) -> list[bytes]:
    return [text_of(sample) for sample in samples]


def differences(samples: Sequence[Sample], expected: Sequence[bytes]) -> int:
    return sum(text != wanted for text, wanted in zip(texts(samples), expected, strict=True))


# ---- kills -----------------------------------------------------------------------------------------------


def kill(endpoint: Endpoint, part: str, after_s: float, expected: Sequence[bytes]) -> Kill:
    """Kill ``part`` of the busiest replica ``after_s`` seconds after the streams began."""
    before = continued(endpoint.url)
    samples, recovery_s = run_fast(_under_fire(endpoint, part, after_s))
    return Kill(
        failed=sum(not sample.ok for sample in samples),
        different=differences(samples, expected),
        continued=continued(endpoint.url) - before,
        longest_pause_ms=percentile((1000 * gap for sample in samples for gap in sample.gaps_s), 100),
        recovery_s=recovery_s,
    )


async def _under_fire(endpoint: Endpoint, part: str, after_s: float) -> tuple[list[Sample], float]:
    load = asyncio.ensure_future(closed_loop(endpoint.url, questions(), len(SUBJECTS), limit_s=LOAD_LIMIT_S))
    await asyncio.sleep(after_s)
    recovery_s = await asyncio.to_thread(_kill_busiest, endpoint, part)
    return await load, recovery_s


def _kill_busiest(endpoint: Endpoint, part: str) -> float:
    """Kill the busiest replica; returns the seconds until another replica has taken its place."""
    victim = max(members(endpoint.url), key=lambda member: member["in_flight"])
    os.kill(getattr(engine_processes(endpoint.pids[0], victim["url"]), part), signal.SIGKILL)
    began = time.monotonic()
    wait_for_replicas(endpoint.url, without=victim["replica"])
    return time.monotonic() - began


def wait_for_replicas(url: str, without: str = "") -> None:
    """Wait until all replicas serve and ``without`` is not among them.

    Raises:
        PeerError: this did not happen in time.
    """

    def all_serve() -> bool:
        serving = [member for member in members(url) if member["can_serve"]]
        return len(serving) >= REPLICAS and all(member["replica"] != without for member in serving)

    wait_for(all_serve, RECOVERY_LIMIT_S, f"{REPLICAS} replicas")


def engine_processes(root: int, url: str) -> EngineProcesses:
    """The processes of the replica that listens at ``url``, below the process ``root``.

    Raises:
        PeerError: there is no such replica, or one of its processes is gone.
    """
    port = urlsplit(url).port
    replicas = [each for each in psutil.Process(root).children(recursive=True) if _is(each, "ray::ServeRepl")]
    replica = next((each for each in replicas if _listens(each, port)), None)
    core = None if replica is None else _child(replica, "VLLM::EngineCor")
    if replica is None or core is None:
        raise PeerError(f"no whole engine listens at {url}")
    return EngineProcesses(replica.pid, core.pid)


def _child(parent: psutil.Process, name: str) -> psutil.Process | None:
    return next((child for child in parent.children() if _is(child, name)), None)


def _is(process: psutil.Process, name: str) -> bool:
    """Whether the process has this name; the kernel keeps only 15 characters of a name."""
    try:
        return bool(process.name().startswith(name))
    except psutil.NoSuchProcess:
        return False


def _listens(process: psutil.Process, port: int | None) -> bool:
    try:
        sockets = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets)


def members(url: str) -> list[dict[str, Any]]:
    """The model's members, as a gateway shows them."""
    found: list[dict[str, Any]] = _get_json(f"{url}/admin/fleet")[MODEL]
    return found


def continued(url: str) -> int:
    """Streams that a gateway continued since its start."""
    return int(_get_json(f"{url}/admin/traffic")["continued"])


def _get_json(url: str) -> Any:
    with NO_PROXY.open(urllib.request.Request(url, headers=as_admin()), timeout=ADMIN_TIMEOUT_S) as response:
        return json.load(response)
