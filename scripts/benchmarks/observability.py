"""What it costs to measure every request: latency windows, alerts, metrics, the newest requests, log lines.

Promptly with all of this, as shipped, is compared with Promptly without it. Both are compared with the bare
engine that is measured beside them, and they take turns in running first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.engines import scripted_engine
from benchmarks.layer import ABOUT, CROWD, ITL_MS, MODEL, TOKENS, Level, measure, settings_for
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.table import Figure, Target, at_least, at_most, write_report

WAVES, ROUNDS = 6, 3
"""Requests per stream in one round, and rounds in one start, which alternate with the bare engine."""

MEASURED, UNMEASURED = "measured", "unmeasured"
SETTINGS: dict[str, dict[str, Any]] = {
    MEASURED: {},
    UNMEASURED: {"gateway": {"metrics": False}, "logs": {"requests": "off"}},
}

Pair = tuple[Level, Level]
"""The bare engine and Promptly, measured one after the other."""


def pairs_of(name: str, options: Options, repeat: int) -> list[Pair]:
    return pairs_with(SETTINGS[name], options, repeat)


def pairs_with(
    args: Mapping[str, Any], options: Options, repeat: int, env: Mapping[str, str] | None = None
) -> list[Pair]:
    """Measure one start of Promptly, with these settings beside its member."""
    found: list[Pair] = []
    rounds, waves = (1, 1) if options.quick else (ROUNDS, WAVES)
    with (
        scripted_engine(MODEL, TOKENS, ITL_MS) as engine,
        promptly(settings_for(engine.url, **args), env=env) as endpoint,
    ):
        for warm in (engine, endpoint):
            measure(warm, 8, 1)  # opens connections and runs all code once
        for number in range(rounds):
            order = options.order(repeat + number)
            levels = [measure(each, CROWD, waves) for each in (engine, endpoint)[::order]]
            bare, behind = levels[::order]
            found.append((bare, behind))
    return found


def figures_of(found: Sequence[dict[str, list[Pair]]]) -> list[Figure]:
    """``found`` has one element per repeat."""
    both = [(repeat[MEASURED], repeat[UNMEASURED]) for repeat in found]
    return cost_of("measuring", both, throughput=at_least(0.98), ttft=at_most(0.3))


def cost_of(
    work: str,
    both: Sequence[tuple[Sequence[Pair], Sequence[Pair]]],
    *,
    throughput: Target,
    ttft: Target | None,
) -> list[Figure]:
    """What Promptly with ``work`` costs more than Promptly without; ``both`` has both results of each
    repeat."""

    def mean(pairs: Sequence[Pair], of: str) -> float:
        return fmean(float(getattr(behind, of)) for _, behind in pairs)

    def share(pairs: Sequence[Pair]) -> float:
        return mean(pairs, "tokens_per_s") / fmean(bare.tokens_per_s for bare, _ in pairs)

    return [
        Figure(
            f"throughput with {work} over without, {CROWD} streams",
            "×",
            tuple(share(on) / share(off) for on, off in both),
            throughput,
        ),
        Figure(
            f"TTFT p50 with {work}, less that without, {CROWD} streams",
            "ms",
            tuple(mean(on, "ttft_p50_ms") - mean(off, "ttft_p50_ms") for on, off in both),
            ttft,
        ),
        Figure(
            f"CPU per 1,000 tokens with {work} over without, {CROWD} streams",
            "×",
            tuple(mean(on, "cpu_s_per_1k_tokens") / mean(off, "cpu_s_per_1k_tokens") for on, off in both),
        ),
    ]


def run(options: Options) -> list[Figure]:
    found = [
        {name: pairs_of(name, options, repeat) for name in list(SETTINGS)[:: options.order(repeat)]}
        for repeat in range(options.repeats)
    ]
    figures = figures_of(found)
    write_report(options.out, "observability", figures, about=ABOUT)
    return figures
