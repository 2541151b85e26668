"""Compare two results of lm-evaluation-harness, document by document, with the verdicts of `promptly eval`.

    lm_eval --model vllm --model_args pretrained=BASE --tasks arc_easy --log_samples --output_path base/
    lm_eval --model vllm --model_args pretrained=INT8 --tasks arc_easy --log_samples --output_path int8/
    promptly lmeval base/ int8/

For weights and quantizations: the harness reads likelihoods, which an endpoint for chats does not give.

Exit status: 0 not worse, 1 worse, 2 results that cannot be compared, 3 undecided.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from serve_app.errors import SuiteError
from serve_app.evaluation.lm_eval import Task, load_results, paired
from serve_app.evaluation.statistics import loss_of_scores
from serve_app.evaluation.verdict import SCORE_MARGIN, Judgement, Verdict, judge_scores

STATUS: Mapping[Verdict, int] = {Verdict.NOT_WORSE: 0, Verdict.WORSE: 1, Verdict.UNDECIDED: 3}
NOT_COMPARABLE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly lmeval``."""
    parser.add_argument("baseline", type=Path, help="a samples_*.jsonl, or a folder that has some")
    parser.add_argument("candidate", type=Path, help="the same of the candidate")
    parser.add_argument("--metric", help="of the samples; default: the first known one, such as exact_match")
    parser.add_argument(
        "--margin", type=float, default=100 * SCORE_MARGIN, help="points of score (default: %(default)s)"
    )
    parser.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    try:
        if not 0 < options.margin <= 100:
            raise SuiteError(f"--margin: expected more than 0 and at most 100 points, got {options.margin:g}")
        baseline = load_results(options.baseline, options.metric)
        candidate = load_results(options.candidate, options.metric)
        for line in compared(baseline, candidate):
            print(line)
        judgement = judged(baseline, candidate, options.margin / 100)
    except SuiteError as error:
        print(error, file=sys.stderr)
        return NOT_COMPARABLE
    print(in_words(judgement))
    return STATUS[judgement.verdict]


def compared(baseline: Mapping[str, Task], candidate: Mapping[str, Task]) -> Iterator[str]:
    """A line for each task. No verdicts: of many tasks one is soon worse by chance.

    Raises:
        SuiteError: the two do not have the same tasks.
    """
    if baseline.keys() != candidate.keys():
        lacking = ", ".join(sorted(baseline.keys() ^ candidate.keys()))
        raise SuiteError(f"these tasks are in one of the two only: {lacking}")
    yield f"{'task':<28} {'metric':<12} {'documents':>9} {'baseline':>9} {'candidate':>9}"
    for name in sorted(baseline):
        one, other = paired(baseline[name], candidate[name])
        means = f"{sum(one) / len(one):>9.3f} {sum(other) / len(other):>9.3f}"
        yield f"{name:<28} {baseline[name].metric:<12} {len(one):>9} {means}"


def judged(baseline: Mapping[str, Task], candidate: Mapping[str, Task], margin: float) -> Judgement:
    """All documents of all tasks together, each once."""
    pairs = [paired(baseline[name], candidate[name]) for name in sorted(baseline)]
    one = [score for scores, _ in pairs for score in scores]
    other = [score for _, scores in pairs for score in scores]
    return judge_scores(loss_of_scores(one, other), margin)


def in_words(judgement: Judgement) -> str:
    loss = judgement.loss.interval
    points = f"{100 * loss.estimate:+.1f} points lost (95 %: {100 * loss.low:+.1f} to {100 * loss.high:+.1f})"
    more = f"; about {judgement.needed} documents would decide" if judgement.needed else ""
    return f"{judgement.verdict.value}: {points} of {judgement.loss.count} documents{more}"
