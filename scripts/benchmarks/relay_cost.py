"""The CPU time of a relayed token: Promptly, HAProxy alone with the same engine, and ``ray.serve.llm``.

As in ``layer`` the engine is scripted and all streams begin together. What the processes use without any
request is measured first and subtracted. The engine's own time is not counted, except for ``ray.serve.llm``,
whose engine runs inside its replica.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.engines import scripted_engine
from benchmarks.idle import name_of
from benchmarks.layer import ITL_MS, MODEL, TOKENS, behind_promptly
from benchmarks.load import chat_request, closed_loop, own_cpu_seconds, run_fast, summarise
from benchmarks.options import Options
from benchmarks.peers import Endpoint, Script, haproxy_alone, ray_serve_llm_direct
from benchmarks.table import Figure, at_most, comparison, table, write_report
from deployments.launcher.processes import descendants

STREAMS = 64
WAVES = 8
IDLE_S = 10.0

PROMPTLY, HAPROXY = "Promptly", "HAProxy alone"
RAY = "ray.serve.llm, direct streaming, with its engine"
PARTS = ("HAProxy", "gateway", "others")

Peer = Callable[[str], AbstractContextManager[Endpoint]]

PEERS: Mapping[str, Peer] = {
    PROMPTLY: behind_promptly,
    HAPROXY: lambda url: haproxy_alone(url, MODEL),
    RAY: lambda _: ray_serve_llm_direct(MODEL, Script(tokens=TOKENS, itl_ms=ITL_MS)),
}

LIMIT_S = 0.08
"""Twice the figure of HAProxy alone when it was first measured."""


@dataclass(frozen=True)
class Cost:
    """CPU seconds per 1,000 tokens of each part, without what the part uses when idle."""

    parts: Mapping[str, float]
    errors: int

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def run(options: Options) -> list[Figure]:
    costs: dict[str, list[Cost]] = {name: [] for name in PEERS}
    for repeat in range(options.repeats):
        for name, peer in list(PEERS.items())[:: options.order(repeat)]:
            with scripted_engine(MODEL, TOKENS, ITL_MS) as engine, peer(engine.url) as endpoint:
                costs[name].append(measure(endpoint, 1 if options.quick else WAVES))
    figures = figures_of(costs)
    about = {"streams": STREAMS, "engine": f"scripted, {TOKENS} tokens, {ITL_MS:g} ms each"}
    write_report(options.out, "relay_cost", figures, layout=layout, about=about)
    return figures


def measure(endpoint: Endpoint, waves: int) -> Cost:
    _load(endpoint, 2)  # opens connections and runs all code once
    pids = [pid for root in endpoint.pids for pid in (root, *descendants(root))]
    before, began = used_by(pids), time.monotonic()
    time.sleep(IDLE_S)
    after, idle_s = used_by(pids), time.monotonic() - began
    idle = {part: (after[part] - before[part]) / idle_s for part in PARTS}
    before, began = used_by(pids), time.monotonic()
    tokens, errors = _load(endpoint, waves)
    after, busy_s = used_by(pids), time.monotonic() - began
    parts = {part: after[part] - before[part] - idle[part] * busy_s for part in PARTS}
    return Cost({part: used / max(1, tokens) * 1000 for part, used in parts.items()}, errors)


def _load(endpoint: Endpoint, waves: int) -> tuple[int, int]:
    """Run the load; returns the numbers of tokens and errors."""
    requests = [chat_request(endpoint.model, f"Question {each}.", TOKENS) for each in range(STREAMS * waves)]
    summary = summarise(run_fast(closed_loop(endpoint.url, requests, STREAMS)), ITL_MS / 1000)
    return summary.tokens, summary.errors + summary.refused


def used_by(pids: Sequence[int]) -> dict[str, float]:
    """The CPU seconds used so far, by part."""
    used = dict.fromkeys(PARTS, 0.0)
    for pid in pids:
        used[part_of(name_of(pid))] += own_cpu_seconds(pid)
    return used


def part_of(command: str) -> str:
    """The part to which a process belongs, by its command line."""
    if command.startswith("ray::ServeReplica") and "Gateway" in command:
        return "gateway"
    return "HAProxy" if command.split(" ", maxsplit=1)[0].endswith("haproxy") else "others"


def figures_of(costs: Mapping[str, Sequence[Cost]]) -> list[Figure]:
    """The targets first, then the figures of each part."""
    ours, theirs = costs[PROMPTLY], costs[RAY]
    name = f"CPU per 1,000 tokens, {STREAMS} streams"
    figures = [
        Figure(name, "s", tuple(cost.total for cost in ours), at_most(LIMIT_S)),
        Figure(
            f"{name}, over ray.serve.llm's direct streaming with its engine",
            "×",
            tuple(our.total / their.total for our, their in zip(ours, theirs, strict=True)),
            at_most(1),
        ),
        Figure("errors", "", tuple(float(cost.errors) for cost in ours), at_most(0)),
    ]
    for series, repeats in costs.items():
        figures.append(Figure(name, "s", tuple(cost.total for cost in repeats), series=series))
        for part in PARTS:
            values = tuple(cost.parts[part] for cost in repeats)
            figures.append(Figure(f"of it: {part}", "s", values, series=series))
    return figures


def layout(figures: Sequence[Figure]) -> str:
    aimed = [figure for figure in figures if figure.target is not None]
    return f"{table(aimed)}\n\n{comparison([figure for figure in figures if figure.target is None])}"
