"""The contract of scorers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case


class ScoreError(Exception):
    """A scorer could not judge: the judge's answer is no verdict, a function raised, an embedding is missing.
    It says nothing about the answer, so it is never counted as a score of 0."""


@dataclass(frozen=True, slots=True)
class Score:
    """``value``: 0 (worst) to 1. ``reason``: one short line for reports."""

    value: float
    passed: bool
    reason: str

    def __post_init__(self) -> None:
        """
        Raises:
            ScoreError: ``value`` is not within 0..1; NaN is not.
        """
        if not 0.0 <= self.value <= 1.0:
            raise ScoreError(f"a score of {self.value!r} is not within 0 to 1")


@dataclass(frozen=True, slots=True)
class CaseScore:
    """All assertions of one case about one answer. ``value``: their weighted mean; ``None`` if one of them
    could not judge. ``passed``: whether all of them pass; ``None`` if that is unknown, because one could not
    judge and none failed. ``reasons``: of assertions that failed or could not judge."""

    value: float | None
    passed: bool | None
    scores: tuple[Score | None, ...] = ()
    """One for each assertion, in order; ``None``: it could not judge."""
    reasons: tuple[str, ...] = ()


class Services(Protocol):
    """What some scorers ask outside of this process."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """
        Raises:
            ScoreError: there is no embedder, or it does not answer.
        """
        ...

    async def ask_judge(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """
        Raises:
            ScoreError: there is no judge, or it does not answer.
        """
        ...


class Scorer(Protocol):
    """Made once for each assertion; keeps nothing between answers."""

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        """
        Raises:
            ScoreError: it cannot judge this answer.
        """
        ...
