"""Experiments in the gateway: how exact the split of sessions is, and what shadows cost the clients.

The split is counted in two processes, as two gateways or two starts would count it. For shadows, one Promptly
serves the same scripted engine under two names; requests to one of them are shadowed to a candidate at an
engine of its own. Rounds with and without shadows take turns, with a pause until the last shadows have ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.engines import scripted_engine
from benchmarks.load import chat_request, open_loop, percentile, poisson, run_fast
from benchmarks.load.requests import Sample
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.table import Figure, at_most, write_report
from serve_app.experiments import Asking, Plan
from serve_app.settings.experiments import ExperimentSettings

SESSIONS = 100_000
SHARE = 20.0
TOKENS, ITL_MS = 50, 20.0
RATE_PER_S, ROUND_S, ROUNDS = 10.0, 10.0, 6
"""These make about ten streams at once. Two cores serve many more, so there is idle capacity."""

PAUSE_S = 2.0
PLAIN, TRIED, CANDIDATE = "plain", "tried", "candidate"


def experiment(kind: str) -> dict[str, Any]:
    arm = {"name": CANDIDATE, "model": CANDIDATE, "percent": SHARE}
    return {"name": "bench", "kind": kind, "models": [TRIED], "arms": [arm]}


def candidates(sessions: int) -> list[int]:
    """The sessions that are sent to the candidate."""
    plan = Plan.of([ExperimentSettings.model_validate(experiment("split"))])
    found = []
    for number in range(sessions):
        unit = f"session {number}"
        assigned = plan.split(Asking("tenant", TRIED, None, unit, unit), 0.0, ())
        if assigned is not None and assigned.change is not None:
            found.append(number)
    return found


def split_figures() -> list[Figure]:
    """Figures of the split, counted in two processes that share nothing."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        one, two = pool.map(candidates, [SESSIONS, SESSIONS])
    off = abs(100 * len(one) / SESSIONS - SHARE)
    moved = len(set(one) ^ set(two))
    return [
        Figure(f"split of {SESSIONS:,} sessions: distance from the share", "points", (off,), at_most(0.5)),
        Figure("sessions with another arm in another process", "", (float(moved),), at_most(0)),
    ]


def settings_for(engine: Endpoint, candidate: Endpoint) -> dict[str, Any]:
    def model(name: str, to: Endpoint) -> dict[str, Any]:
        upstream = {
            "name": name,
            "url": f"{to.url}/v1",
            "kind": "vllm",
            "model": to.model,
            "max_requests": 64,
        }
        return {"id": name, "upstreams": [upstream]}

    models = [model(PLAIN, engine), model(TRIED, engine), model(CANDIDATE, candidate)]
    return {"models": models, "experiments": [experiment("shadow")]}


def shadow_round(endpoint: Endpoint, model: str, seed: int, seconds: float) -> list[Sample]:
    requests = [
        chat_request(model, f"Question {seed} {number}.", TOKENS)
        for number in range(int(seconds * RATE_PER_S))
    ]
    samples = run_fast(open_loop(endpoint.url, poisson(requests, RATE_PER_S, seed)))
    time.sleep(PAUSE_S)
    return samples


def shadow_ratio(options: Options, repeat: int) -> tuple[float, float]:
    """The TTFT p95 with shadows divided by that without, and the errors of both."""
    rounds, seconds = (1, 2.0) if options.quick else (ROUNDS, ROUND_S)
    found: dict[str, list[Sample]] = {PLAIN: [], TRIED: []}
    with (
        scripted_engine("first", TOKENS, ITL_MS) as engine,
        scripted_engine("second", TOKENS, ITL_MS) as candidate,
        promptly(settings_for(engine, candidate)) as endpoint,
    ):
        for model in (PLAIN, TRIED):
            shadow_round(endpoint, model, -1, 1.0)  # opens connections and runs all code once
        for number in range(rounds):
            for model in [PLAIN, TRIED][:: options.order(repeat + number)]:
                found[model] += shadow_round(endpoint, model, number, seconds)
    errors = sum(not sample.ok for samples in found.values() for sample in samples)
    return ttft_p95(found[TRIED]) / ttft_p95(found[PLAIN]), float(errors)


def ttft_p95(samples: Sequence[Sample]) -> float:
    return percentile((sample.ttft_s for sample in samples if sample.ok and sample.ttft_s is not None), 95)


def run(options: Options) -> list[Figure]:
    ratios = [shadow_ratio(options, repeat) for repeat in range(options.repeats)]
    figures = [
        *split_figures(),
        Figure(
            f"TTFT p95 with {SHARE:g} % shadowed over without",
            "×",
            tuple(ratio for ratio, _ in ratios),
            at_most(1.01),
        ),
        Figure("requests that failed meanwhile", "", tuple(errors for _, errors in ratios), at_most(0)),
    ]
    about = {
        "engines": f"two, scripted, {TOKENS} tokens, {ITL_MS:g} ms each",
        "load": f"Poisson, {RATE_PER_S:g} requests/s, {ROUNDS} rounds of {ROUND_S:g} s each, taking turns",
    }
    write_report(options.out, "experiments", figures, about=about)
    return figures
