"""What all scorers share: their options, and what they compare an answer with."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.scorers.base import Score, Services

SHOWN_CHARS = 120


class OptionScorer(BaseModel):
    """A scorer whose fields are its options in a suite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    compares: ClassVar[bool] = True
    """Whether it needs something to compare with: its option ``value``, else what the case expects."""

    value: Any = None

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        """
        Raises:
            ScoreError: it cannot judge this answer.
        """
        raise NotImplementedError

    def wanted(self, case: Case) -> Any:
        return case.expected if self.value is None else self.value

    def check(self, *, has_expected: bool) -> None:
        """Called once for each case that a suite has.

        Raises:
            ValueError: there is nothing to compare with, or options do not fit each other.
        """
        if self.compares and self.value is None and not has_expected:
            raise ValueError("expected `value`, or `expected` of the case")


def verdict(passed: bool, reason: str, value: float | None = None) -> Score:
    """All or nothing, unless ``value`` says how much of it."""
    return Score(float(passed) if value is None else value, passed, reason)


def shown(value: Any) -> str:
    """A value in a reason: one short line."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text[: 4 * SHOWN_CHARS].split())
    return repr(text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…")


def texts(value: Any) -> list[str]:
    """What is wanted as a list of texts: one, or several of which each will do. Numbers as JSON writes
    them."""
    return [_text(each) for each in (value if isinstance(value, list | tuple) else [value])]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
