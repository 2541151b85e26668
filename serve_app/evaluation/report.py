"""The report of a run: figures with their intervals, verdicts, and the exit status that says the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from serve_app.evaluation.outcome import (
    TIMES,
    Pair,
    Reply,
    by_case,
    mean_value,
    paired_times,
    times_of,
    typical_times,
)
from serve_app.evaluation.statistics import (
    LEVEL,
    Interval,
    Loss,
    interval_of,
    loss_of_scores,
    loss_of_times,
    losses_of_times,
    mean,
    median,
    ratio_of_means,
)
from serve_app.evaluation.target import BASELINE, CANDIDATE, Target
from serve_app.evaluation.verdict import (
    SCORE_MARGIN,
    TIME_MARGIN,
    Judgement,
    Verdict,
    judge_former,
    judge_shares,
    judge_times,
    together,
)

QUALITY, LATENCY = "quality", "latency"
GATES = (QUALITY, LATENCY)
TITLES = {"ttft": "TTFT, ms", "itl": "ITL, ms", "e2e": "end to end, ms"}
SCORE, ANSWERED = "score", "answered"
FORMER = "former"
"""The key of a time that is compared with an earlier report begins with it."""

FORMER_MARGIN = 0.15
"""A share of the time in an earlier report. The two runs do not alternate, so the state of the machine is in
the difference, and no test can tell it from the target."""

MOST_UNJUDGED = 0.1
"""The share of answers that scorers may fail to judge. Above, the scores stand for too few of the cases."""

STATUS = {Verdict.NOT_WORSE: 0, Verdict.WORSE: 1, Verdict.UNDECIDED: 3}
BAD_INPUT = 2


Size = Callable[[Reply, str], float]
"""Measures a reply; gets its target's role, too."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the run was asked to judge. ``former``: the typical times of an earlier report, by case."""

    gates: Sequence[str] = GATES
    score_margin: float = SCORE_MARGIN
    time_margin: float = TIME_MARGIN
    former: Mapping[str, Mapping[str, float]] | None = None
    former_margin: float = FORMER_MARGIN
    seed: int = 0

    @property
    def level(self) -> float:
        """The level of each gate: all together call a target worse than itself in at most ``LEVEL`` of the
        runs."""
        return LEVEL / max(1, len(set(self.gates)))


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``change``: candidate minus baseline if ``is_share``, else candidate over baseline.
    ``loss``: of a score, before it is judged."""

    key: str
    title: str
    candidate: Interval
    baseline: Interval | None = None
    change: Interval | None = None
    is_share: bool = False
    loss: Loss | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One target: how many of its answers there are, and the first reason why one is missing."""

    target: Target
    answers: int
    failed: int
    first_error: str | None


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One case: mean scores, medians of times, and what scorers said of the candidate's first bad answer."""

    id: str
    tags: tuple[str, ...]
    candidate: float | None
    baseline: float | None
    times: Mapping[str, Mapping[str, float]]
    reasons: tuple[str, ...] = ()
    error: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    """The first answers, by role; kept only if asked for."""


@dataclass(frozen=True, slots=True)
class Report:
    """``verdicts``: by gate, those that were judged. ``notes``: what a reader has to know beside figures."""

    suite: str
    sides: tuple[Side, ...]
    rows: tuple[Row, ...]
    tags: tuple[Row, ...]
    verdicts: Mapping[str, Verdict]
    verdict: Verdict | None
    notes: tuple[str, ...]
    cases: tuple[CaseLine, ...]
    pairs: int
    planned: int
    seed: int
    started: str = ""
    took_s: float = 0.0
    concurrency: int = 1
    unusable: str | None = None
    """Why nothing can be said: most answers failed or were not judged."""

    @property
    def status(self) -> int:
        """The exit status. A run that was stopped never passes."""
        if self.unusable is not None:
            return BAD_INPUT
        status = 0 if self.verdict is None else STATUS[self.verdict]
        return STATUS[Verdict.UNDECIDED] if status == 0 and self.pairs < self.planned else status


def make_report(
    suite: str,
    targets: Sequence[Target],
    pairs: Sequence[Pair],
    planned: int,
    choices: Choices,
    *,
    keep_texts: bool = False,
    started: str = "",
    took_s: float = 0.0,
    concurrency: int = 1,
) -> Report:
    """``targets``: the candidate, or baseline and candidate. ``planned``: pairs of the whole run."""
    sides = tuple(_side(target, _replies(pairs, target.role)) for target in targets)
    cases = by_case(pairs)
    rows = _quality_rows(cases, pairs, choices) + _time_rows(pairs, cases, choices)
    rows += _sizes(pairs, targets)
    verdicts = _verdicts(rows, choices)
    return Report(
        suite=suite,
        sides=sides,
        rows=tuple(rows),
        tags=tuple(_tag_rows(cases)),
        verdicts=verdicts,
        verdict=together(verdicts.values()) if verdicts else None,
        notes=tuple(_notes(sides, pairs, planned)),
        cases=tuple(_case_line(given, keep_texts) for given in cases.values()),
        pairs=len(pairs),
        planned=planned,
        seed=choices.seed,
        started=started,
        took_s=took_s,
        concurrency=concurrency,
        unusable=_unusable(sides, pairs),
    )


# ---- figures ---------------------------------------------------------------------------------------------


def _quality_rows(cases: Mapping[str, Sequence[Pair]], pairs: Sequence[Pair], choices: Choices) -> list[Row]:
    rows = [row] if (row := _score_row(SCORE, "score, %", list(cases.values()), choices)) else []
    failed = any(reply.answer.error is not None for pair in pairs for reply in pair.replies)
    if failed and all(pair.baseline is not None for pair in pairs):
        one = [fmean(_answered(pair.baseline) for pair in given) for given in cases.values()]
        two = [fmean(_answered(pair.candidate) for pair in given) for given in cases.values()]
        rows.append(_shares(ANSWERED, "answered, %", one, two, choices))
    losses = {row.key: row.loss for row in rows if row.loss is not None}
    judged = judge_shares(losses, choices.score_margin, choices.level)
    return [replace(row, judgement=judged.get(row.key)) for row in rows]


def _score_row(key: str, title: str, cases: Sequence[Sequence[Pair]], choices: Choices) -> Row | None:
    """The row of the cases that both sides have scores for."""
    alone = [mean_value(pair.candidate for pair in given) for given in cases]
    if all(pair.baseline is None for given in cases for pair in given):
        values = [value for value in alone if value is not None]
        return Row(key, title, interval_of(values, mean, choices.seed), is_share=True) if values else None
    other = [mean_value(pair.baseline for pair in given if pair.baseline) for given in cases]
    both = [(one, two) for one, two in zip(other, alone, strict=True) if one is not None and two is not None]
    if not both:
        return None
    one, two = map(list, zip(*both, strict=True))
    return _shares(key, title, one, two, choices)


def _shares(key: str, title: str, one: Sequence[float], two: Sequence[float], choices: Choices) -> Row:
    loss = loss_of_scores(one, two, choices.seed)
    return Row(
        key,
        title,
        interval_of(two, mean, choices.seed),
        interval_of(one, mean, choices.seed),
        loss.interval.mapped(lambda value: 0.0 - value),
        is_share=True,
        loss=loss,
    )


def _time_rows(pairs: Sequence[Pair], cases: Mapping[str, Sequence[Pair]], choices: Choices) -> list[Row]:
    times, second = paired_times(pairs)
    losses = losses_of_times(times, second, choices.seed)
    judged = judge_times(losses, choices.time_margin, choices.level)
    rows = []
    for name, time in TIMES.items():
        candidate = _middle(times_of(_replies(pairs, CANDIDATE), time), choices.seed)
        baseline = _middle(times_of(_replies(pairs, BASELINE), time), choices.seed)
        change = losses[name].interval.mapped(math.exp) if name in losses else None
        rows.append(
            Row(
                name,
                f"{TITLES[name]} (median)",
                candidate,
                baseline if change else None,
                change,
                judgement=judged.get(name),
            )
        )
    return rows + _tails(pairs) + _former_rows(cases, choices)


def _tails(pairs: Sequence[Pair]) -> list[Row]:
    """The 95th percentiles, without intervals: few answers say little of them."""
    rows = []
    for name, time in TIMES.items():
        both = [
            Interval(*[float(np.quantile(found, 0.95)) * 1000] * 3) if found else None
            for found in (times_of(_replies(pairs, role), time) for role in (BASELINE, CANDIDATE))
        ]
        if both[1] is not None:
            rows.append(Row(f"{name}_p95", f"{TITLES[name]} (p95)", both[1], both[0]))
    return rows


def _former_rows(cases: Mapping[str, Sequence[Pair]], choices: Choices) -> list[Row]:
    """The candidate's times against those of an earlier report, by case. Worse: surely above the margin."""
    if choices.former is None:
        return []
    now = typical_times({name: [pair.candidate for pair in given] for name, given in cases.items()})
    allowed = 1 + choices.former_margin
    losses, before = {}, {}
    for name in TIMES:
        pairs = [
            (choices.former[case][name], now[case][name])
            for case in now
            if name in now[case] and name in choices.former.get(case, {})
        ]
        if pairs:
            one, two = zip(*pairs, strict=True)
            before[name] = one
            most = [value * allowed for value in one]
            losses[name] = loss_of_times(most, two, [True] * len(two), choices.seed)
    judged = judge_former(losses)
    return [
        Row(
            f"{FORMER}_{name}",
            f"{TITLES[name]} (against the earlier report)",
            _middle([now[case][name] for case in now if name in now[case]], choices.seed),
            _middle(before[name], choices.seed),
            losses[name].interval.mapped(lambda value: math.exp(value) * allowed),
            judgement=judged[name],
        )
        for name in losses
    ]


def _middle(seconds: Sequence[float], seed: int) -> Interval:
    return interval_of([1000 * value for value in seconds], median, seed)


def _sizes(pairs: Sequence[Pair], targets: Sequence[Target]) -> Iterable[Row]:
    """Tokens and cost. They get no verdict, because more may be better."""
    whole = [pair for pair in pairs if all(reply.answer.error is None for reply in pair.replies)]
    yield from _size_row("prompt_tokens", "prompt tokens", whole, lambda reply, _: reply.answer.prompt_tokens)
    yield from _size_row("output_tokens", "output tokens", whole, lambda reply, _: reply.answer.output_tokens)
    if all(target.price_in is not None and target.price_out is not None for target in targets):
        roles = {target.role: target for target in targets}
        yield from _size_row(
            "cost", "cost of 1,000", whole, lambda reply, role: 1000 * (roles[role].cost(reply.answer) or 0.0)
        )


def _size_row(key: str, title: str, pairs: Sequence[Pair], size: Size) -> Iterable[Row]:
    two = [float(size(pair.candidate, CANDIDATE)) for pair in pairs]
    one = [float(size(pair.baseline, BASELINE)) for pair in pairs if pair.baseline is not None]
    if not two:
        return
    if len(one) < len(two):
        yield Row(key, title, interval_of(two, mean))
    else:
        yield Row(key, title, interval_of(two, mean), interval_of(one, mean), ratio_of_means(one, two))


def _tag_rows(cases: Mapping[str, Sequence[Pair]]) -> Iterable[Row]:
    """Scores of the cases with each tag; no verdicts, because with many tags one is soon worse by chance."""
    groups: dict[str, list[Sequence[Pair]]] = {}
    for given in cases.values():
        for tag in given[0].case.tags:
            groups.setdefault(tag, []).append(given)
    for tag in sorted(groups):
        title = f"{tag} ({len(groups[tag])})"
        if row := _score_row(tag, title, groups[tag], Choices()):
            yield row


# ---- verdicts --------------------------------------------------------------------------------------------


def _verdicts(rows: Sequence[Row], choices: Choices) -> dict[str, Verdict]:
    judged = {row.key: row.judgement.verdict for row in rows if row.judgement is not None}
    found: dict[str, Verdict] = {}
    if QUALITY in choices.gates and SCORE in judged:
        # Failures count as scores of 0, too; a target with low scores anyway is found out by this one.
        worse = judged.get(ANSWERED) == Verdict.WORSE
        found[QUALITY] = Verdict.WORSE if worse else judged[SCORE]
    elif ANSWERED in judged:
        found[QUALITY] = judged[ANSWERED]
    if LATENCY in choices.gates and (times := [judged[name] for name in TIMES if name in judged]):
        found[LATENCY] = together(times)
    if former := [verdict for key, verdict in judged.items() if key.startswith(FORMER)]:
        found["latency against the earlier report"] = together(former)
    return found


def _unusable(sides: Sequence[Side], pairs: Sequence[Pair]) -> str | None:
    if not pairs:
        return "no case was asked"
    first = sides[0]
    if 2 * first.failed >= first.answers:
        return (
            f"{first.target.role} {first.target.label} failed {first.failed} of {first.answers} requests "
            f"(first: {first.first_error}): there is nothing to compare with"
        )
    replies = [reply for pair in pairs for reply in pair.replies if reply.score and reply.score.scores]
    unjudged = [reply for reply in replies if reply.is_unjudged]
    if len(unjudged) > MOST_UNJUDGED * len(replies):
        first_reason = _reason(unjudged[0])
        return f"{len(unjudged)} of {len(replies)} answers could not be judged (first: {first_reason})"
    return None


def _notes(sides: Sequence[Side], pairs: Sequence[Pair], planned: int) -> Iterable[str]:
    if len(pairs) < planned:
        yield f"stopped after {len(pairs)} of {planned} turns: the figures are of these"
    for side in sides:
        if side.failed:
            yield (
                f"{side.target.role} failed {side.failed} of {side.answers} requests, which score 0 "
                f"(first: {side.first_error})"
            )
    unjudged = [reply for pair in pairs for reply in pair.replies if reply.is_unjudged]
    if unjudged:
        yield f"{len(unjudged)} answers could not be judged and are left out (first: {_reason(unjudged[0])})"


def _reason(reply: Reply) -> str:
    reasons = reply.score.reasons if reply.score is not None else ()
    return next((reason for reason in reasons if "could not judge" in reason), "no reason given")


# ---- sides and cases -------------------------------------------------------------------------------------


def _replies(pairs: Iterable[Pair], role: str) -> list[Reply]:
    both = (pair.candidate if role == CANDIDATE else pair.baseline for pair in pairs)
    return [reply for reply in both if reply is not None]


def _answered(reply: Reply | None) -> float:
    return float(reply is not None and reply.answer.error is None)


def _side(target: Target, replies: Sequence[Reply]) -> Side:
    errors = [reply.answer.error for reply in replies if reply.answer.error is not None]
    return Side(target, len(replies), len(errors), errors[0] if errors else None)


def _case_line(pairs: Sequence[Pair], keep_texts: bool) -> CaseLine:
    candidate = [pair.candidate for pair in pairs]
    baseline = [pair.baseline for pair in pairs if pair.baseline is not None]
    sides = {CANDIDATE: candidate, **({BASELINE: baseline} if baseline else {})}
    bad = next((reply for reply in candidate if reply.score is not None and reply.score.reasons), None)
    return CaseLine(
        id=pairs[0].case.id,
        tags=pairs[0].case.tags,
        candidate=mean_value(candidate),
        baseline=mean_value(baseline),
        times=typical_times(sides),
        reasons=bad.score.reasons if bad is not None and bad.score is not None else (),
        error=next((reply.answer.error for reply in candidate if reply.answer.error is not None), None),
        texts={role: replies[0].answer.text for role, replies in sides.items()} if keep_texts else {},
    )
