"""What a judge says of the answers of an experiment's arms, and the verdict on it.

Several answers to one session are not independent, and a session keeps its arm: so what counts is the mean of
each unit (a session, or what else keeps an arm). An arm is looked at again and again while scores come, so it
is judged only when it has twice as many units as at the last look, and each look has its part of the level:
however often the verdict is read, it says "worse" of the control itself as rarely as one look would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from serve_app.evaluation.statistics import LEVEL, loss_of_groups
from serve_app.evaluation.verdict import Judgement, judge_scores

LOOKS = (25, 50, 100, 200, 400, 800)
"""Units of the smaller of two arms."""

MOST_UNITS = 1000
"""Most units of an arm. Scores of further ones are not taken: by then a difference has shown."""


class UnitScores(msgspec.Struct, frozen=True, array_like=True):
    """``place``: which unit. ``total`` of ``count`` scores, each 0 to 1."""

    place: float
    total: float
    count: int


class ArmScores:
    """Scores of one arm since the gateway's start: a verdict needs more than a window holds."""

    __slots__ = ("_units",)

    def __init__(self, units: Iterable[UnitScores] = ()) -> None:
        self._units = {unit.place: unit for unit in units}

    def add(self, place: float, score: float, count: int = 1) -> None:
        """``score``: the sum of ``count`` scores."""
        known = self._units.get(place)
        if known is None:
            if len(self._units) >= MOST_UNITS:
                return
            known = UnitScores(place, 0.0, 0)
        self._units[place] = UnitScores(place, known.total + score, known.count + count)

    def with_others(self, others: Iterable[Sequence[UnitScores]]) -> ArmScores:
        """Together with what other gateways have; sessions may be in several."""
        together = ArmScores(self._units.values())
        for units in others:
            for unit in units:
                together.add(unit.place, unit.total, unit.count)
        return together

    @property
    def units(self) -> list[UnitScores]:
        return list(self._units.values())

    @property
    def means(self) -> list[float]:
        """The mean of each unit, in an order that does not depend on which gateway has seen it first."""
        return [unit.total / unit.count for unit in sorted(self._units.values(), key=lambda each: each.place)]


def looks(control: ArmScores, arm: ArmScores) -> int:
    """How many of ``LOOKS`` they have reached."""
    units = min(len(control.units), len(arm.units))
    return sum(least <= units for least in LOOKS)


def judged(control: ArmScores, arm: ArmScores, arms: int) -> Judgement:
    """The judgement of one look. ``arms``: of the experiment, beside the control. Takes a tenth of a
    second."""
    return judge_scores(loss_of_groups(control.means, arm.means), level=LEVEL / (len(LOOKS) * arms))
