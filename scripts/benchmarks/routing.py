"""Routing policies: a production trace of conversations, replayed on four engines.

    cd scripts; python -m benchmarks --only routing

The trace is played over HTTP through Promptly, policy by policy, and in a simulation over loads and cache
sizes, which shows where the measured point lies. *Load* is the prefill time that would arrive per second of
the engines' time without any cache; with its cache hits, round robin keeps the engines about a tenth less
busy. The measured point is a load of 0.8 and a cache of 2 million of the trace's tokens per engine, which an
8B model's engine can have with host memory in addition to the GPU's. The four caches together hold most of
what the trace reuses (a quarter of its tokens); one cache alone holds a third of that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.request import urlopen

from benchmarks.engines import ScriptedProcess, scripted_process
from benchmarks.load import Sample, chat_request, closed_loop, open_loop, percentile, run_fast
from benchmarks.mooncake import SESSION_HEADER, TRACE, Arrival, Replay, arrivals, tokens_per_s
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.replay_simulation import EngineSettings, simulate
from benchmarks.table import Figure, at_most, comparison, plot_cdf, table, write_report

POLICIES = ("round_robin", "session", "least_wait", "prefix")
ENGINES, SLOTS, ITL_MS = 4, 64, 20.0
LOAD = 0.8
CACHE_TOKENS = 2 << 20
"""Cache size per engine, in tokens of the trace; it is scaled like every other length."""

SWEEP_LOADS = (0.6, 0.8, 0.95)
SWEEP_CACHES = (1 << 19, 2 << 20, 8 << 20)
REQUESTS, QUICK_REQUESTS = 1500, 150
"""The beginning of the trace, about 50 seconds of replay. Twice as many requests at twice the speed would
also fit, but would keep two cores so busy that they, and not the routing, decide the wait."""

LIMIT_S = 180.0
LATE_MS = 50.0
"""If this process sends a request later than this, other work kept the machine busy."""


@dataclass(frozen=True)
class Run:
    """One replay with one policy. Times are those of the replay, which is faster than the trace."""

    ttft_ms: tuple[float, ...]
    cached_share: float
    errors: int
    late_p99_ms: float

    @property
    def mean_ms(self) -> float:
        return fmean(self.ttft_ms)

    @property
    def p99_ms(self) -> float:
        return percentile(self.ttft_ms, 99)


Runs = Mapping[str, Sequence[Run]]


def run(options: Options, trace: Path = TRACE) -> list[Figure]:
    if not trace.exists():
        print(f"routing: skipped, because the trace {trace} is not on this machine")
        return []
    measured: dict[str, list[Run]] = {policy: [] for policy in POLICIES}
    count = QUICK_REQUESTS if options.quick else REQUESTS
    replays = [arrivals(Replay(seed=repeat), trace)[:count] for repeat in range(options.repeats)]
    for repeat, requests in enumerate(replays):
        for policy, one in replay_all(requests, POLICIES[:: options.order(repeat)]).items():
            measured[policy].append(one)
    if busy := [
        policy for policy, runs in measured.items() if any(one.late_p99_ms > LATE_MS for one in runs)
    ]:
        print(f"routing: the machine was too busy for these figures to mean much: {', '.join(busy)}")
    figures = all_figures(measured)
    write_report(options.out, "routing", figures, layout=layout, about=_about(replays[0]))
    simulated = sweep(replays)
    write_report(options.out, "routing-simulated", simulated, layout=comparison, about=_about(replays[0]))
    samples = {policy: measured[policy][0].ttft_ms for policy in POLICIES}
    title = "Time to first token by routing policy"
    plot_cdf(options.out / "routing.png", title, "TTFT, ms", samples, log_x=True)
    return figures


def _about(requests: Sequence[Arrival]) -> dict[str, Any]:
    return {
        "trace": f"Mooncake conversations, {len(requests):,} requests in {requests[-1].at_s:.0f} s",
        "replay": f"{Replay()}; the seed is the number of the repeat",
        "engines": f"{ENGINES}, {SLOTS} slots, {ITL_MS:g} ms per token, one prefill at a time",
        "load": f"{LOAD:g} before cache hits: {1000 * s_per_token(requests, LOAD):.3f} ms per prompt token",
        "cache per engine": f"{CACHE_TOKENS:,} of the trace's tokens, {_scaled(CACHE_TOKENS):,} scaled",
        "sessions": "the second block of a prompt (the first one opens every prompt)",
    }


def s_per_token(requests: Sequence[Arrival], load: float) -> float:
    """The prefill time per token at which the arriving tokens take the share ``load`` of the engines'
    capacity without a cache."""
    return load * ENGINES / tokens_per_s(requests)


def _scaled(tokens: int) -> int:
    return tokens // Replay().length_scale


# ---- over HTTP -------------------------------------------------------------------------------------------

Fleets = Mapping[str, Sequence[ScriptedProcess]]


def replay_all(requests: Sequence[Arrival], policies: Sequence[str]) -> dict[str, Run]:
    """Replay the trace with each policy in turn, in one Promptly with a model per policy. Each model has its
    own fresh engines."""
    with ExitStack() as stack:
        fleets = {policy: _fleet(stack, policy, requests) for policy in policies}
        endpoint = stack.enter_context(promptly(settings_for(fleets)))
        return {policy: replay(endpoint.url, policy, fleets[policy], requests) for policy in policies}


def _fleet(stack: ExitStack, policy: str, requests: Sequence[Arrival]) -> list[ScriptedProcess]:
    engine = {
        "slots": SLOTS,
        "itl_ms": ITL_MS,
        "cache_tokens": _scaled(CACHE_TOKENS),
        "prefill_ms_per_1k": 1e6 * s_per_token(requests, LOAD),
    }
    return [stack.enter_context(scripted_process(policy, **engine)) for _ in range(ENGINES)]


def replay(url: str, policy: str, engines: Sequence[ScriptedProcess], requests: Sequence[Arrival]) -> Run:
    warm = [chat_request(policy, f"Hello {number}.", 2) for number in range(4 * ENGINES)]
    run_fast(closed_loop(url, warm, ENGINES))  # opens connections and runs all code once
    due = [(arrival.at_s, arrival.request(policy)) for arrival in requests]
    samples = run_fast(open_loop(url, due, limit_s=LIMIT_S))
    stats = [_stats(engine) for engine in engines]
    cached, prompts = (sum(one[name] for one in stats) for name in ("cached_tokens", "prompt_tokens"))
    return _run(samples, cached / prompts)


def _run(samples: Sequence[Sample], cached_share: float) -> Run:
    return Run(
        ttft_ms=tuple(1000 * one.ttft_s for one in samples if one.ok and one.ttft_s is not None),
        cached_share=cached_share,
        errors=sum(not one.ok for one in samples),
        late_p99_ms=percentile((1000 * one.late_s for one in samples), 99),
    )


def settings_for(fleets: Fleets) -> dict[str, Any]:
    models = [
        {"id": policy, "routing": policy, "upstreams": [_upstream(engine) for engine in engines]}
        for policy, engines in fleets.items()
    ]
    return {"models": models, "gateway": {"session_header": SESSION_HEADER, "session_affinity": False}}


def _upstream(engine: ScriptedProcess) -> dict[str, Any]:
    name = engine.url.rpartition("/")[2]
    return {"name": name, "url": f"{engine.url}/v1", "kind": "vllm", "max_requests": SLOTS}


def _stats(engine: ScriptedProcess) -> dict[str, Any]:
    with urlopen(f"{engine.url}/sim/stats", timeout=10) as response:
        counters: dict[str, Any] = json.load(response)
    return counters


def all_figures(measured: Runs) -> list[Figure]:
    """The targets come first; they are ratios within each repeat."""
    shown = [
        _ratio("mean TTFT, prefix over round robin", "mean_ms", "round_robin", measured, 0.7),
        _ratio("TTFT p99, prefix over least wait", "p99_ms", "least_wait", measured, 1.0),
    ]
    for policy, runs in measured.items():
        shown += [
            Figure("mean TTFT", "ms", tuple(one.mean_ms for one in runs), series=policy),
            Figure("TTFT p99", "ms", tuple(one.p99_ms for one in runs), series=policy),
            Figure("prompt tokens cached", "%", tuple(100 * one.cached_share for one in runs), series=policy),
            Figure("errors", "", tuple(float(one.errors) for one in runs), series=policy),
            Figure("sent late, p99", "ms", tuple(one.late_p99_ms for one in runs), series=policy),
        ]
    return shown


def _ratio(name: str, field: str, over: str, measured: Runs, limit: float) -> Figure:
    pairs = zip(measured["prefix"], measured[over], strict=True)
    values = tuple(getattr(one, field) / getattr(other, field) for one, other in pairs)
    return Figure(name, "×", values, at_most(limit))


def layout(figures: Sequence[Figure]) -> str:
    aimed = [figure for figure in figures if figure.target is not None]
    others = [figure for figure in figures if figure.target is None]
    return f"{table(aimed)}\n\n{comparison(others)}"


# ---- in the simulation -----------------------------------------------------------------------------------


def sweep(replays: Sequence[Sequence[Arrival]]) -> list[Figure]:
    """Every policy at every load and cache size."""
    return [
        figure
        for load in SWEEP_LOADS
        for cache in SWEEP_CACHES
        for policy in POLICIES
        for figure in _simulated(replays, load, cache, policy)
    ]


def _simulated(replays: Sequence[Sequence[Arrival]], load: float, cache: int, policy: str) -> list[Figure]:
    outcomes = [
        simulate(
            requests,
            policy,
            EngineSettings(s_per_token(requests, load), _scaled(cache), SLOTS, itl_s=ITL_MS / 1000),
            engines=ENGINES,
        )
        for requests in replays
    ]
    where = f"load {load:g}, cache {cache / (1 << 20):g}M"
    p99s = tuple(1000 * percentile(one.ttft_s, 99) for one in outcomes)
    return [
        Figure(
            f"mean TTFT, {where}", "ms", tuple(1000 * fmean(one.ttft_s) for one in outcomes), series=policy
        ),
        Figure(f"TTFT p99, {where}", "ms", p99s, series=policy),
        Figure(f"cached, {where}", "%", tuple(100 * one.cached_share for one in outcomes), series=policy),
    ]
