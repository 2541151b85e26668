"""How often the verdicts of `promptly eval` are wrong, and what they find.

Scores: 200 suites of 400 cases are drawn from the answers of a real run (`evaluation_answers.json`: for each
case the scores of SmolLM2-135M in bf16 and in INT8). Either both sides have the answer in bf16, or one side
has the answer in INT8; that side is drawn for each case, so a verdict "worse" is a false alarm. For the
planted loss, so many of the candidate's points are removed, case by case, that its mean falls by five points.
With repeats the side is drawn for each answer: this is noise of single answers, which repeats average out.
*The most that can be found* is the share that the exact sign test of the differing cases finds, randomised at
its limit: with scores of 0 and 1 no unbiased test of that level finds more.

Times: real requests to two scripted engines in turn, 200 in all for one verdict, while two processes beside
them compute in bursts for half of the time. The candidate is the same, or its first token takes a tenth
longer.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from benchmarks.engines import scripted_process
from benchmarks.options import Options
from benchmarks.table import Figure, at_least, at_most, write_report
from deployments.evaluation.client import TargetClient
from deployments.evaluation.runner import Plan, Run
from deployments.evaluation.services import HttpServices
from serve_app.evaluation.case import Case
from serve_app.evaluation.outcome import Pair, paired_times
from serve_app.evaluation.report import Choices
from serve_app.evaluation.statistics import LEVEL, loss_of_scores, losses_of_times
from serve_app.evaluation.target import Target
from serve_app.evaluation.verdict import Judgement, Verdict, judge_scores, judge_times

ANSWERS = Path(__file__).with_name("evaluation_answers.json")
SUITES, QUICK_SUITES = 200, 20
REPEATS = 3
CASES = 400
PLANTED_POINTS = 0.05
MODEL = "scripted"
TTFT_MS, PLANTED_TTFT = 20.0, 1.1
TOKENS, ITL_MS = 3, 1.0
PAIRS = 100
"""Pairs of requests for one verdict: 200 requests."""

TIMED, QUICK_TIMED = 60, 2
"""The number of verdicts of each kind."""

BURST_S = (0.01, 0.3)
BURNERS = 2


def run(options: Options) -> list[Figure]:
    suites, timed = (QUICK_SUITES, QUICK_TIMED) if options.quick else (SUITES, TIMED)
    recorded = recorded_scores(ANSWERS)
    same = [[scores[0]] * 2 for scores in recorded]
    figures = score_figures(same, suites, "the same answers twice, as at temperature 0")
    different = "answers as different as bf16's and INT8's"
    figures += score_figures(recorded, suites, different)
    figures += score_figures(recorded, suites, f"{different}, each asked {REPEATS} times", REPEATS)
    figures += time_figures(timed)
    about = {
        "answers": f"{sum(map(len, recorded)):,} recorded answers to {len(recorded)} cases; mean score "
        f"{100 * float(np.mean([np.mean(scores) for scores in recorded])):.1f} %",
        "times": f"{PAIRS} pairs for a verdict, {TTFT_MS:g} ms to the first token",
        "noise": f"{BURNERS} processes that compute in bursts",
    }
    write_report(options.out, "evaluation", figures, about=about)
    return figures


# ---- scores ----------------------------------------------------------------------------------------------


def recorded_scores(path: Path) -> list[list[float]]:
    """The scores of all answers to each case."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return [[float(score) for score in case["scores"]] for case in document["cases"]]


def score_figures(
    recorded: Sequence[Sequence[float]], suites: int, series: str, repeats: int = 1
) -> list[Figure]:
    """Judge scores as a run with ``--gates quality`` does."""
    given = {
        planted: [drawn(recorded, planted, seed, repeats) for seed in range(suites)]
        for planted in (0.0, PLANTED_POINTS)
    }
    found = {
        planted: [judge_scores(loss_of_scores(*pair, seed)).verdict for seed, pair in enumerate(pairs)]
        for planted, pairs in given.items()
    }
    rows = [
        ("the same twice: worse, %", 0.0, Verdict.WORSE, at_most(5)),
        ("the same twice: not worse, %", 0.0, Verdict.NOT_WORSE, None),
        ("loss of 5 points: worse, %", PLANTED_POINTS, Verdict.WORSE, at_least(80)),
        ("loss of 5 points: not worse, %", PLANTED_POINTS, Verdict.NOT_WORSE, None),
    ]
    figures = [
        Figure(name, "", (percent(found[planted], verdict),), target, f"{CASES} cases, {series}")
        for name, planted, verdict, target in rows
    ]
    if repeats == 1:
        most = 100 * float(np.mean([sign_test(*pair) for pair in given[PLANTED_POINTS]]))
        figures.append(
            Figure("loss of 5 points: the most that can be found, %", "", (most,), None, figures[0].series)
        )
    return figures


def drawn(
    recorded: Sequence[Sequence[float]], planted: float, seed: int, repeats: int = 1
) -> tuple[list[float], list[float]]:
    """One suite: cases are drawn with replacement, and in each case and repeat a different answer for each
    side."""
    rng = np.random.default_rng(seed)
    spoiled = planted / float(np.mean([np.mean(scores) for scores in recorded]))
    one, two = [], []
    for case in rng.integers(0, len(recorded), CASES):
        answers = np.mean([rng.permutation(recorded[case]) for _ in range(repeats)], axis=0)
        one.append(float(answers[0]))
        two.append(float(answers[1]) * float(rng.random() >= spoiled))
    return one, two


def sign_test(one: Sequence[float], two: Sequence[float]) -> float:
    """The probability that the exact sign test says "worse". It is randomised at its limit, so that it has
    exactly its level."""
    lost = sum(first > second for first, second in zip(one, two, strict=True))
    count = lost + sum(first < second for first, second in zip(one, two, strict=True))
    chances = [math.comb(count, number) * 0.5**count for number in range(lost, count + 1)]
    return min(1.0, max(0.0, (LEVEL - sum(chances[1:])) / chances[0]))


# ---- times -----------------------------------------------------------------------------------------------


def time_figures(count: int) -> list[Figure]:
    """Get verdicts of both kinds in turn, so that both see the same state of the machine."""
    settings: dict[str, Any] = {"tokens": TOKENS, "itl_ms": ITL_MS}
    found: dict[str, list[dict[str, Judgement]]] = {"same": [], "slower": []}
    with (
        scripted_process(MODEL, first_token_ms=TTFT_MS, **settings) as baseline,
        scripted_process(MODEL, first_token_ms=TTFT_MS, **settings) as same,
        scripted_process(MODEL, first_token_ms=TTFT_MS * PLANTED_TTFT, **settings) as slower,
        bursts(),
    ):
        for seed in range(count):
            for name, engine in (("same", same), ("slower", slower)):
                pairs = asyncio.run(measured(baseline.url, engine.url, PAIRS, seed))
                found[name].append(judged(pairs))
    alarms = [
        Verdict.WORSE if Verdict.WORSE in {each.verdict for each in one.values()} else Verdict.UNDECIDED
        for one in found["same"]
    ]
    slower_ttft = [one["ttft"].verdict for one in found["slower"]]
    ratios = [float(np.exp(one["ttft"].loss.interval.estimate)) for one in found["slower"]]
    series = f"{2 * PAIRS} requests in turn, noisy machine"
    return [
        Figure("the same engine twice: any time worse, %", "", (percent(alarms),), at_most(5), series),
        Figure("TTFT + 10 %: worse, %", "", (percent(slower_ttft),), at_least(80), series),
        Figure("TTFT + 10 %: ratio found", "", tuple(ratios), None, series),
    ]


async def measured(baseline: str, candidate: str, pairs: int, seed: int) -> list[Pair]:
    """Send requests as `promptly eval` does."""
    cases = [
        Case(f"{number}", ({"role": "user", "content": f"Question {number}"},)) for number in range(pairs)
    ]
    async with aiohttp.ClientSession() as http:
        clients = [
            TargetClient(Target(role, MODEL, url), http, 60.0)
            for role, url in (("baseline", baseline), ("candidate", candidate))
        ]
        services = HttpServices(http, None, None, 60.0)
        return await Run(Plan(cases, seed=seed), clients, services, lambda *_: None).pairs()


def judged(pairs: Sequence[Pair]) -> dict[str, Judgement]:
    """Judge times as a run does that judges quality, too."""
    return judge_times(losses_of_times(*paired_times(pairs)), level=Choices().level)


def percent(verdicts: Sequence[Verdict], wanted: Verdict = Verdict.WORSE) -> float:
    return 100 * verdicts.count(wanted) / len(verdicts)


@contextmanager
def bursts() -> Iterator[None]:
    """Run other work on the machine meanwhile."""
    context = multiprocessing.get_context("spawn")
    burners = [context.Process(target=burn, args=(seed,), daemon=True) for seed in range(BURNERS)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.terminate()
            burner.join()


def burn(seed: int) -> None:
    """Compute and pause in turn, each for a random time."""
    draw = random.Random(seed)
    while True:
        end = time.monotonic() + draw.uniform(*BURST_S)
        while time.monotonic() < end:
            pass
        time.sleep(draw.uniform(*BURST_S))


# ---- the recording ---------------------------------------------------------------------------------------


def record(report: Path, path: Path = ANSWERS) -> None:
    """Save the scores of both targets from a report of `promptly eval --json`."""
    document = json.loads(report.read_text(encoding="utf-8"))
    answered = [case for case in document["cases"] if case["error"] is None]
    scores = {case["id"]: [case["baseline"], case["candidate"]] for case in answered}
    lines = [json.dumps({"id": name, "scores": scores[name]}) for name in sorted(scores)]
    about = json.dumps(f"{document['suite']}, {document['started']}")
    path.write_text(f'{{"about": {about}, "cases": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
