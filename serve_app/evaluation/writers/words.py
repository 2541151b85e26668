"""The cells and sentences that all writers share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from serve_app.evaluation.report import ANSWERED, FORMER, TITLES, Report, Row
from serve_app.evaluation.statistics import Interval
from serve_app.evaluation.target import BASELINE, CANDIDATE
from serve_app.evaluation.verdict import Judgement, Verdict

NONE = "–"


def head(report: Report) -> list[str]:
    return ["figure", CANDIDATE] if is_alone(report) else ["figure", BASELINE, CANDIDATE, "change", "verdict"]


def is_alone(report: Report) -> bool:
    """Whether nothing is compared: one target, and no earlier report."""
    return len(report.sides) < 2 and not any(row.key.startswith(FORMER) for row in report.rows)


def cells(report: Report, rows: Iterable[Row]) -> list[list[str]]:
    """One list for each row, in the order of ``head``."""
    if is_alone(report):
        return [[row.title, value(row, row.candidate)] for row in rows]
    return [
        [row.title, value(row, row.baseline), value(row, row.candidate), change(row), verdict(row)]
        for row in rows
    ]


def value(row: Row, interval: Interval | None) -> str:
    """``62.5 (57.0–68.1)``."""
    if interval is None or math.isnan(interval.estimate):
        return NONE
    scale = 100 if row.is_share else 1
    estimate, low, high = (number(scale * part) for part in _parts(interval))
    return estimate if low == high else f"{estimate} ({low}–{high})"


def change(row: Row) -> str:
    """``−1.7 points (−4.2 to +0.8)`` of scores, ``× 1.05 (1.02–1.08)`` of everything else."""
    if row.change is None or math.isnan(row.change.estimate):
        return NONE
    if row.is_share:
        estimate, low, high = (_signed(100 * part) for part in _parts(row.change))
        return f"{estimate} points ({low} to {high})"
    return "× {:.3f} ({:.3f}–{:.3f})".format(*_parts(row.change))


def verdict(row: Row) -> str:
    """The verdict; if undecided, with what would decide."""
    if row.judgement is None:
        return ""
    return str(row.judgement.verdict) + _needed(row, row.judgement)


def sentences(report: Report) -> list[str]:
    """The verdicts in words, the whole first."""
    if report.unusable is not None:
        return [f"No verdict: {report.unusable}."]
    if report.verdict is None:
        return ["No verdict: one target alone, and no earlier report to compare it with."]
    parts = [f"{gate}: {found}" for gate, found in report.verdicts.items()]
    return [f"Verdict: {report.verdict} ({', '.join(parts)}).", *_explained(report)]


def about(report: Report) -> dict[str, str]:
    """What was run."""
    found = {side.target.role: f"{side.target.label} at {side.target.url}" for side in report.sides}
    return {
        "suite": report.suite,
        **found,
        "turns": f"{report.pairs:,} of {len(report.cases):,} cases, {report.concurrency} at a time, "
        f"seed {report.seed}",
        **({"started": report.started} if report.started else {}),
        "took": f"{report.took_s:.0f} s",
    }


def bad_scorers(reasons: Sequence[str]) -> str:
    """The names of scorers alone: their reasons may quote the answer."""
    return ", ".join(dict.fromkeys(reason.partition(":")[0].partition(" could not")[0] for reason in reasons))


def number(amount: float) -> str:
    """About three significant digits."""
    if math.isnan(amount):
        return NONE
    size = abs(amount)
    if size >= 100 or size == 0:
        return f"{amount:,.0f}"
    return f"{amount:.1f}" if size >= 10 else f"{amount:.2f}" if size >= 1 else f"{amount:.3g}"


def times(found: Mapping[str, Mapping[str, float]], role: str) -> list[str]:
    """Milliseconds of one case."""
    own = found.get(role, {})
    return [number(1000 * own[name]) if name in own else NONE for name in TITLES]


def _explained(report: Report) -> Iterable[str]:
    for row in report.rows:
        judgement = row.judgement
        if judgement is None or judgement.verdict == Verdict.NOT_WORSE:
            continue
        if judgement.verdict == Verdict.WORSE:
            yield f"{row.title} is worse: {change(row)}; {_accepted(row, judgement)} is accepted."
        elif row.key != ANSWERED:
            yield f"{row.title} is undecided: {change(row)}{_needed(row, judgement)}."


def _accepted(row: Row, judgement: Judgement) -> str:
    if row.is_share:
        return f"a loss of {100 * judgement.margin:g} points"
    if row.key.startswith(FORMER):
        return "what the margin allows"
    return f"{100 * math.expm1(judgement.margin):.3g} % more"


def _needed(row: Row, judgement: Judgement) -> str:
    if judgement.needed is None:
        return ""
    unit = "cases" if row.is_share or row.key.startswith(FORMER) else "turns"
    return f"; about {judgement.needed:,} {unit} would decide"


def _signed(amount: float) -> str:
    return f"{amount:+.1f}".replace("-", "−") if round(amount, 1) else "0.0"


def _parts(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high
