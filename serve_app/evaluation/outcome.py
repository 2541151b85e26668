"""What a run brought: one pair of answers for each turn, and the figures of one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean, median

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.schedule import Turn
from serve_app.evaluation.scorers.base import CaseScore


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with its score; ``None``: not scored yet, or the case has nothing that decides."""

    answer: Answer
    score: CaseScore | None = None

    @property
    def value(self) -> float | None:
        return None if self.score is None else self.score.value

    @property
    def is_unjudged(self) -> bool:
        """Whether a scorer could not judge it."""
        return self.score is not None and None in self.score.scores


@dataclass(frozen=True, slots=True)
class Pair:
    """``baseline`` is ``None`` where one target is evaluated alone."""

    case: Case
    turn: Turn
    candidate: Reply
    baseline: Reply | None = None

    @property
    def replies(self) -> tuple[Reply, ...]:
        return (self.candidate,) if self.baseline is None else (self.baseline, self.candidate)


Time = Callable[[Answer], float | None]


def ttft(answer: Answer) -> float | None:
    return answer.ttft_s


def itl(answer: Answer) -> float | None:
    """The mean time between tokens. Of the tokens, not of the pieces of the stream: with speculation a piece
    holds several. ``None`` for fewer than two tokens."""
    total = sum(answer.itl_s)
    return total / (answer.output_tokens - 1) if answer.output_tokens > 1 and total > 0 else None


def e2e(answer: Answer) -> float | None:
    return answer.e2e_s or None


TIMES: Mapping[str, Time] = {"ttft": ttft, "itl": itl, "e2e": e2e}
"""Seconds. An answer that is an error has none."""

NO_TIMES = (nan, nan)


def times_of(replies: Iterable[Reply], time: Time) -> list[float]:
    found = (time(reply.answer) for reply in replies if reply.answer.error is None)
    return [value for value in found if value is not None and value > 0]


def paired_times(pairs: Sequence[Pair]) -> tuple[dict[str, tuple[list[float], list[float]]], list[bool]]:
    """Seconds of baseline and candidate by name, NaN in pairs that lack one of them; and whether the
    candidate was second."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in TIMES}
    for pair in pairs:
        for name, time in TIMES.items():
            both = times_of(pair.replies, time)
            for side, seconds in zip(times[name], both if len(both) == 2 else NO_TIMES, strict=True):
                side.append(seconds)
    return times, [pair.turn.is_candidate_second for pair in pairs]


def typical_times(replies: Mapping[str, Sequence[Reply]]) -> dict[str, dict[str, float]]:
    """The median of each time for each case, by the case's id: what a latency baseline keeps."""
    found: dict[str, dict[str, float]] = {}
    for case, given in replies.items():
        medians = {name: times_of(given, time) for name, time in TIMES.items()}
        found[case] = {name: median(values) for name, values in medians.items() if values}
    return found


def by_case(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.case.id, []).append(pair)
    return found


def mean_value(replies: Iterable[Reply]) -> float | None:
    """Over the repeats of one case that were judged."""
    values = [reply.value for reply in replies if reply.value is not None]
    return fmean(values) if values else None
