"""`numeric`: a number in the answer, within a tolerance."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from pydantic import Field

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.scorers.base import Score, ScoreError, Services
from serve_app.evaluation.scorers.options import OptionScorer, shown, verdict

MOST_DIGITS = 400
"""More is beyond every floating-point number."""

NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?"
)


class Numeric(OptionScorer):
    """A number of the answer is ``value`` within ``tolerance`` (absolute) or ``relative`` (a share of
    ``value``).

    ``which``: the ``last`` number (where a model shows its steps first), the ``first``, or the ``only`` one.
    Commas between groups of three digits are left out.
    """

    tolerance: float = Field(0.0, ge=0, allow_inf_nan=False)
    relative: float = Field(0.0, ge=0, allow_inf_nan=False)
    which: Literal["last", "first", "only"] = "last"

    def check(self, *, has_expected: bool) -> None:
        super().check(has_expected=has_expected)
        if self.value is not None:
            as_number(self.value)

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        try:
            wanted = as_number(self.wanted(case))
        except ValueError as error:
            raise ScoreError(str(error)) from None
        found = numbers_in(answer.text)
        if not found:
            return verdict(False, f"there is no number in {shown(answer.text)}")
        if self.which == "only" and len(found) > 1:
            return verdict(False, f"expected one number, got {len(found)} in {shown(answer.text)}")
        said = found[0 if self.which == "first" else -1]
        allowed = max(self.tolerance, self.relative * abs(wanted), 1e-9 * abs(wanted))
        return verdict(abs(said - wanted) <= allowed, f"expected {wanted:g}, got {said:g}")


def as_number(value: Any) -> float:
    """
    Raises:
        ValueError: it is no finite number.
    """
    found = numbers_in(value) if isinstance(value, str) else [value]
    number = found[0] if len(found) == 1 else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"expected a number to compare with, got {shown(value)}")
    try:
        finite = float(number)
    except OverflowError:
        finite = math.inf
    if not math.isfinite(finite):
        raise ValueError(f"expected a finite number to compare with, got {shown(value)}")
    return finite


def numbers_in(text: str) -> list[float]:
    """The finite numbers of a text, in order; ``-`` between digits or letters is no sign."""
    found = (match[0].replace(",", "").replace("−", "-") for match in NUMBER.finditer(text))
    values = [float(each) for each in found if len(each) <= MOST_DIGITS]
    return [value for value in values if math.isfinite(value)]
