"""What some work costs: Promptly with it and Promptly without it run at once, and are loaded in turns.

Two starts that follow each other differ by milliseconds in TTFT, so such a cost cannot be seen between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.engines import scripted_engine
from benchmarks.layer import CROWD, ITL_MS, MODEL, TOKENS, Level, measure, settings_for
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.table import Figure, Target

WAVES, TURNS = 6, 8
"""Requests per stream in a turn, and turns of one start."""


@dataclass(frozen=True)
class Turn:
    """Both, loaded one right after the other."""

    on: Level
    off: Level


def turns_of(
    on: Mapping[str, Any],
    off: Mapping[str, Any],
    options: Options,
    repeat: int,
    env: Mapping[str, str] | None = None,
) -> list[Turn]:
    """One start of each, with these settings before one engine. ``env``: of the one that is ``on``."""
    turns, waves = (1, 1) if options.quick else (TURNS, WAVES)
    found = []
    with (
        scripted_engine(MODEL, TOKENS, ITL_MS) as engine,
        promptly(settings_for(engine.url, **on), env=env) as worker,
        promptly(settings_for(engine.url, **off)) as idler,
    ):
        for warm in (worker, idler):
            measure(warm, 8, 1)  # opens connections and runs all code once
        for number in range(turns):
            order = options.order(repeat + number)
            levels = [measure(each, CROWD, waves) for each in (worker, idler)[::order]]
            found.append(Turn(*levels[::order]))
    return found


def cost_of(
    work: str, found: Sequence[Sequence[Turn]], *, throughput: Target, ttft: Target | None
) -> list[Figure]:
    """Medians of the differences within a turn. ``found`` has the turns of each start."""
    return [
        Figure(
            f"throughput with {work} over without, {CROWD} streams",
            "×",
            tuple(median(turn.on.tokens_per_s / turn.off.tokens_per_s for turn in turns) for turns in found),
            throughput,
        ),
        Figure(
            f"TTFT p50 with {work}, less that without, {CROWD} streams",
            "ms",
            tuple(median(turn.on.ttft_p50_ms - turn.off.ttft_p50_ms for turn in turns) for turns in found),
            ttft,
        ),
        Figure(
            f"CPU per 1,000 tokens with {work} over without, {CROWD} streams",
            "×",
            tuple(
                median(turn.on.cpu_s_per_1k_tokens / turn.off.cpu_s_per_1k_tokens for turn in turns)
                for turns in found
            ),
        ),
    ]
