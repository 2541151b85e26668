"""An engine of two is killed while it answers: its streams go on at the other."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load import Sample, closed_loop, percentile, run_fast
from benchmarks.peers import Endpoint, bare_vllm, promptly
from benchmarks.table import at_least, at_most
from benchmarks.vllm_failover import (
    LOAD_LIMIT_S,
    ONE_CORE_EACH,
    REPLICAS,
    SUBJECTS,
    continued,
    differences,
    engine_processes,
    members,
    questions,
    texts,
    undisturbed,
    wait_for_replicas,
)
from benchmarks.vllm_load import MODEL

from deployments.launcher import processes
from gpu_check.contract import Bench, Finding, Reading, finding, judged, left_out
from gpu_check.engines import EXACT, arguments, settings, variables

CPU_TOKENS, GPU_TOKENS = 96, 1024
"""Tokens of each stream: enough that it still runs at the kill."""

KILL_AT = 0.4
"""Share of the time of undisturbed streams."""

ONE_GPU = "Serve gives each replica a GPU of its own, and there is one"

Victims = Mapping[int, Sequence[int]]
"""The processes of each engine, by the port at which a gateway reaches it."""


def kill(bench: Bench) -> Iterator[Finding]:
    """Replicas of ours where there are GPUs for two; two servers of vLLM behind the gateway anywhere."""
    if bench.on_gpu and len(bench.machine.gpus) < REPLICAS:
        yield left_out("two replicas", ONE_GPU)
    else:
        yield _replicas(bench)
    yield _servers(bench)


def _replicas(bench: Bench) -> Finding:
    model = _model(bench) | {"replicas": REPLICAS}
    with promptly({"models": [model]}) as endpoint:
        wait_for_replicas(endpoint.url)
        return _measured("two replicas", endpoint, _of_replicas(endpoint), _tokens(bench))


def _of_replicas(endpoint: Endpoint) -> Victims:
    found = {}
    for member in members(endpoint.url):
        parts = engine_processes(endpoint.pids[0], member["url"])
        found[_port(member["url"])] = (parts.replica, parts.engine_core)
    return found


def _servers(bench: Bench) -> Finding:
    model = _model(bench)
    env = {**variables(bench, model), **model["engine"]["env"]}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(bare_vllm(MODEL, Path(bench.model), arguments(model), env)) for _ in range(2)
        ]
        upstreams = [
            {"name": f"vllm-{number}", "url": f"{server.url}/v1", "kind": "vllm"}
            for number, server in enumerate(servers)
        ]
        endpoint = stack.enter_context(promptly({"models": [{"id": MODEL, "upstreams": upstreams}]}))
        wait_for_replicas(endpoint.url)
        victims = {
            _port(each.url): [pid for root in each.pids for pid in (root, *processes.descendants(root))]
            for each in servers
        }
        return _measured("two servers of vLLM behind the gateway", endpoint, victims, _tokens(bench))


def _model(bench: Bench) -> dict[str, Any]:
    env = {} if bench.on_gpu else dict(ONE_CORE_EACH)
    return settings(bench, small=True, **EXACT, max_num_seqs=16, env=env)


def _tokens(bench: Bench) -> int:
    return GPU_TOKENS if bench.on_gpu else CPU_TOKENS


def _measured(subject: str, endpoint: Endpoint, victims: Victims, tokens: int) -> Finding:
    calm = undisturbed(endpoint, len(SUBJECTS), tokens)
    after_s = KILL_AT * max(sample.ended_at for sample in calm)
    before = continued(endpoint.url)
    samples = run_fast(_under_fire(endpoint, victims, after_s, tokens))
    gaps = (1000 * gap for sample in samples for gap in sample.gaps_s)
    return finding(
        subject,
        judged("failed streams", sum(not sample.ok for sample in samples), "", at_most(0)),
        judged("continued by the other", continued(endpoint.url) - before, "", at_least(1)),
        Reading("texts that differ", differences(samples, texts(calm))),
        Reading("longest pause", percentile(gaps, 100), "ms"),
        reason=f"{len(SUBJECTS)} streams of {tokens} tokens",
    )


async def _under_fire(endpoint: Endpoint, victims: Victims, after_s: float, tokens: int) -> list[Sample]:
    asked = questions(tokens)
    load = asyncio.ensure_future(closed_loop(endpoint.url, asked, len(asked), limit_s=LOAD_LIMIT_S))
    await asyncio.sleep(after_s)
    await asyncio.to_thread(_kill_busiest, endpoint, victims)
    return await load


def _kill_busiest(endpoint: Endpoint, victims: Victims) -> None:
    busiest = max(members(endpoint.url), key=lambda member: int(member["in_flight"]))
    for pid in victims[_port(busiest["url"])]:
        processes.send_signal(pid, signal.SIGKILL)


def _port(url: str) -> int:
    return urlsplit(url).port or 0
