"""What a judge has said of the arms of all experiments in one gateway, and the verdicts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from serve_app.evaluation.verdict import Judgement
from serve_app.experiments.figures import ArmKey
from serve_app.experiments.scores import ArmScores, UnitScores, judged, looks
from serve_app.settings.experiments import CONTROL

Scores = Mapping[str, Sequence[UnitScores]]
"""Scores of one gateway, by ``NAME=ARM``."""


class ArmsScores:
    """``arms``: of all experiments, with their controls."""

    def __init__(self, arms: Sequence[ArmKey]) -> None:
        self._own = {f"{experiment}={arm}": ArmScores() for experiment, arm in arms}
        self._arms = [key for key in arms if key[1] != CONTROL]
        self._looked: dict[ArmKey, int] = {}
        self._judgements: dict[ArmKey, Judgement] = {}

    def add(self, label: str, place: float, score: float) -> None:
        if (known := self._own.get(label)) is not None:
            known.add(place, score)

    def state(self) -> dict[str, list[UnitScores]]:
        """The state that another gateway asks for."""
        return {label: units for label, scores in self._own.items() if (units := scores.units)}

    async def judge(self, others: Sequence[Scores]) -> None:
        """Look at each arm that has enough more units than at the last look; in a thread."""
        together = {
            label: scores.with_others(state[label] for state in others if label in state)
            for label, scores in self._own.items()
        }
        for key in self._arms:
            name, arm = key
            control, candidate = together[f"{name}={CONTROL}"], together[f"{name}={arm}"]
            reached = looks(control, candidate)
            if reached > self._looked.get(key, 0):
                self._looked[key] = reached
                arms = sum(owner == name for owner, _ in self._arms)
                self._judgements[key] = await asyncio.to_thread(judged, control, candidate, arms)

    def verdicts(self, experiment: str) -> dict[str, Judgement]:
        """The verdicts by arm, where there was a look."""
        return {arm: found for (owner, arm), found in self._judgements.items() if owner == experiment}

    def described(self, key: ArmKey) -> dict[str, object]:
        """A description for people: what this gateway's judge said, and the last look's verdict, which is on
        all gateways' scores. Nothing, if nothing was judged."""
        units = self._own["=".join(key)].units
        shown: dict[str, object] = {}
        if answers := sum(unit.count for unit in units):
            mean = sum(unit.total for unit in units) / answers
            shown = {"answers": answers, "sessions": len(units), "score": round(mean, 3)}
        if (found := self._judgements.get(key)) is not None:
            loss = found.loss.interval
            shown |= {
                "verdict": str(found.verdict),
                "change": round(0.0 - loss.estimate, 3),
                "interval": [round(0.0 - loss.high, 3), round(0.0 - loss.low, 3)],
            }
        return {"judged": shown} if shown else {}
