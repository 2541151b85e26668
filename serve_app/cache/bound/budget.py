"""The error budget: how doubtful a reuse may be so that all reuses together keep the allowed rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPENT = 0.9
"""Share of the allowed errors that is spent; the rest is a reserve for errors that are noticed late."""

PACE = 50.0
"""Reuses over which the limit follows the remaining budget: fewer react faster and oscillate more."""

MOST_SAVED = 100.0
"""Reuses whose allowance may be saved or owed: with more, savings would pay for a long bad period later, and
debts would stop every reuse after one."""

MOST_DOUBT = 0.2
MOST_FACTOR = 7.0
"""Whatever the budget, no entry answers if its bound exceeds ``MOST_DOUBT``, or ``MOST_FACTOR`` times the
rate."""

AUDIT_MEMORY = 128.0
PRIOR_ERRORS = 1.0
"""Errors that count as predicted and found before the first audit: one bad audit alone proves little."""

LEAST_CALIBRATION, MOST_CALIBRATION = 0.5, 4.0

IDLE_MEMORY = 1024.0
"""Observations (other than audits) over which debts and audited errors fade: a limit so low that no entry
passes must not last forever."""

AUDIT_SHARE, SURPRISED_SHARE, LEAST_AUDIT_SHARE = 0.1, 0.05, 0.01
AUDITS_IN_FULL = 20.0
"""Audits after which their share falls as 1 / audits: 5 % at 40, 1 % at 200."""

SURPRISING = 1.25
"""From this calibration on, at least ``SURPRISED_SHARE`` of the reuses are audited."""


@dataclass(slots=True)
class ErrorBudget:
    """Every reuse adds ``max_error_rate`` to the budget and takes its own bound from it; the limit rises with
    the budget.

    While the budget is empty, only reuses with a bound below the rate are allowed. So at any time the mean of
    the (calibrated) bounds over all reuses is at most the rate. The limit is the price of an online
    allocation problem under dual mirror descent with an exponential step (Balseiro, Lu & Mirrokni, "The best
    of many worlds: dual mirror descent for online allocation problems", 2020): it settles where the budget is
    just used.

    ``left`` is the budget in wrong answers; ``audited_wrong`` and ``audited_bound`` are faded sums over
    audits of the errors that were found (less the comparison's noise) and predicted.
    """

    max_error_rate: float
    left: float = 0.0
    audits: float = 0.0
    audited_wrong: float = 0.0
    audited_bound: float = 0.0

    @property
    def calibration(self) -> float:
        """Errors that audits found, divided by those that the bounds predicted (a standardised mortality
        ratio with a gamma prior of mean 1)."""
        ratio = (max(0.0, self.audited_wrong) + PRIOR_ERRORS) / (self.audited_bound + PRIOR_ERRORS)
        return min(MOST_CALIBRATION, max(LEAST_CALIBRATION, ratio))

    @property
    def audit_share(self) -> float:
        """Share of allowed reuses to audit instead: it falls to 1 %, and is at least 5 % after a surprise."""
        least = SURPRISED_SHARE if self.calibration >= SURPRISING else LEAST_AUDIT_SHARE
        return max(least, AUDIT_SHARE * min(1.0, AUDITS_IN_FULL / max(1.0, self.audits)))

    def limit(self) -> float:
        """The highest bound with which an entry may answer now."""
        rate = self.max_error_rate
        most = min(MOST_DOUBT, MOST_FACTOR * rate)
        return min(most, rate * math.exp(min(self.left / (rate * PACE), MOST_FACTOR))) / self.calibration

    def reused(self, bound: float) -> None:
        """An entry answered with this bound."""
        left = self.left + SPENT * self.max_error_rate - bound * self.calibration
        self.left = min(left, MOST_SAVED * self.max_error_rate)

    def observe(self, bound: float, right: bool, false_alarm: float = 0.0) -> None:
        """Record an audit: whether the entry was right. ``false_alarm`` is the share of right answers that
        the comparison calls wrong."""
        kept = 1.0 - 1.0 / AUDIT_MEMORY
        wrong = ((not right) - false_alarm) / (1.0 - false_alarm) if false_alarm < 1 else 0.0
        self.audited_wrong = self.audited_wrong * kept + wrong
        self.audited_bound = self.audited_bound * kept + bound
        self.audits += 1.0

    def idle(self) -> None:
        """Record an observation that was no audit: debts and audited errors fade a little."""
        kept = 1.0 - 1.0 / IDLE_MEMORY
        self.left = max(self.left, self.left * kept)
        self.audited_wrong *= kept
        self.audited_bound *= kept

    def reported_wrong(self) -> None:
        """Record an operator's report of a wrong reuse: it costs one whole error."""
        self.left = max(self.left - 1.0, -MOST_SAVED * self.max_error_rate)

    def merged(self, other: ErrorBudget) -> ErrorBudget:
        """The sum of two budgets, which must not have observations in common."""
        most = MOST_SAVED * self.max_error_rate
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        return ErrorBudget(self.max_error_rate, **sums | {"left": min(most, sums["left"])})

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible; the rate is a setting and is not stored."""
        return {name: round(getattr(self, name), 6) for name in SUMS}

    @classmethod
    def from_dict(cls, max_error_rate: float, data: Mapping[str, Any]) -> ErrorBudget:
        """
        Raises:
            ValueError: ``data`` was not made by ``to_dict``.
        """
        try:
            budget = cls(max_error_rate, **{name: float(data[name]) for name in SUMS})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a budget: {error!r}") from error
        budget.left = min(budget.left, MOST_SAVED * max_error_rate)
        return budget


SUMS = ("left", "audits", "audited_wrong", "audited_bound")
