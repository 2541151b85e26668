"""`regex`, and regular expressions whose time is bounded."""

from __future__ import annotations

from typing import Any, ClassVar

import regex
from pydantic import Field

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.scorers.base import Score, ScoreError, Services
from serve_app.evaluation.scorers.options import OptionScorer, shown, verdict

MOST_TIME_S = 1.0
"""A pattern can take time that doubles with each character of a hostile answer."""


class Regex(OptionScorer):
    """``pattern`` is found in the answer; with ``full`` it is all of it; with ``absent`` it is not in it."""

    compares: ClassVar[bool] = False

    pattern: str
    ignore_case: bool = False
    full: bool = False
    absent: bool = False
    timeout_s: float = Field(MOST_TIME_S, gt=0, le=60, allow_inf_nan=False)

    def check(self, *, has_expected: bool) -> None:
        if self.value is not None:
            raise ValueError("`value`: expected `pattern` in its place")
        compiled(self.pattern)

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        found = is_found(
            self.pattern,
            answer.text.strip() if self.full else answer.text,
            full=self.full,
            ignore_case=self.ignore_case,
            timeout_s=self.timeout_s,
        )
        if found is not self.absent:
            return verdict(True, "matched" if found else "not matched")
        return verdict(
            False, f"{shown(self.pattern)} {'matches' if found else 'does not match'} {shown(answer.text)}"
        )


def compiled(pattern: str, *, ignore_case: bool = False) -> Any:
    """
    Raises:
        ValueError: it is no regular expression.
    """
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{shown(pattern)} is no regular expression: {error}") from None


def is_found(
    pattern: str, text: str, *, full: bool = False, ignore_case: bool = False, timeout_s: float = MOST_TIME_S
) -> bool:
    """
    Raises:
        ScoreError: it took longer than ``timeout_s``.
    """
    program = compiled(pattern, ignore_case=ignore_case)
    try:
        found = (
            program.fullmatch(text, timeout=timeout_s) if full else program.search(text, timeout=timeout_s)
        )
    except TimeoutError:
        raise ScoreError(f"{shown(pattern)} took longer than {timeout_s:g} s") from None
    except MemoryError:
        raise ScoreError(f"{shown(pattern)} takes too much memory") from None
    return found is not None
