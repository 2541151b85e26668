"""The running account of errors: how much doubt a reuse may carry so that all together keep the rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPENT = 0.9
"""Share of the allowed errors that is planned for: the rest is for what is seen late."""

PACE = 50.0
"""Reuses over which the limit answers to what is left: fewer follow faster and swing more."""

MOST_SAVED = 100.0
"""Reuses whose whole allowance may be saved up, or owed: more would pay for a long bad stretch later, or stop
every reuse after one."""

MOST_DOUBT = 0.2
MOST_FACTOR = 7.0
"""However much is left, no answer is given that is wrong more often than this, or so many times the rate."""

AUDIT_MEMORY = 128.0
PRIOR_ERRORS = 1.0
"""Errors, as foretold, that are counted before the first audit: one bad audit alone proves little."""

LEAST_CALIBRATION, MOST_CALIBRATION = 0.5, 4.0

IDLE_MEMORY = 1024.0
"""Observations without a reuse in which debts and audits fade: a limit that nothing passes must not stay."""

AUDIT_SHARE, SURPRISED_SHARE, LEAST_AUDIT_SHARE = 0.2, 0.05, 0.01
AUDITS_IN_FULL = 20.0
"""Audits after which their share falls, with 1 / audits: 5 % at 80, 1 % at 400 (some 20,000 reuses)."""

SURPRISING = 1.25
"""A calibration from which on more is audited again."""


@dataclass(slots=True)
class ErrorBudget:
    """Every reuse earns its share of ``max_error_rate`` and pays its own bound; the limit rises with what is
    left.

    While nothing is left only reuses below the rate are let through, so that at any time the mean of the
    (calibrated) bounds over all reuses is at most the rate. The limit is the price of an online allocation
    problem under dual mirror descent with an exponential step (Balseiro, Lu & Mirrokni, "The best of many
    worlds: dual mirror descent for online allocation problems", 2020): it settles where the budget is
    just used.

    ``left`` is in wrong answers; ``audited_wrong`` and ``audited_bound`` are faded sums over audits of the
    errors found (less the comparison's noise) and foretold.
    """

    max_error_rate: float
    left: float = 0.0
    audits: float = 0.0
    audited_wrong: float = 0.0
    audited_bound: float = 0.0

    @property
    def calibration(self) -> float:
        """Errors that audits found over those that the bounds foretold (a standardised mortality ratio with a
        gamma prior of mean 1)."""
        ratio = (max(0.0, self.audited_wrong) + PRIOR_ERRORS) / (self.audited_bound + PRIOR_ERRORS)
        return min(MOST_CALIBRATION, max(LEAST_CALIBRATION, ratio))

    @property
    def audit_share(self) -> float:
        """Share of would-be reuses to explore instead: falling to 1 %, and at least 5 % after a surprise."""
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
        """What an audit found: was the entry right? ``false_alarm`` is the share of right answers that the
        comparison calls wrong."""
        kept = 1.0 - 1.0 / AUDIT_MEMORY
        wrong = ((not right) - false_alarm) / (1.0 - false_alarm) if false_alarm < 1 else 0.0
        self.audited_wrong = self.audited_wrong * kept + wrong
        self.audited_bound = self.audited_bound * kept + bound
        self.audits += 1.0

    def idle(self) -> None:
        """An observation that was no audit: what speaks against reuse fades a little."""
        kept = 1.0 - 1.0 / IDLE_MEMORY
        self.left = max(self.left, self.left * kept)
        self.audited_wrong *= kept
        self.audited_bound *= kept

    def reported_wrong(self) -> None:
        """An operator says that a reuse was wrong: it is paid in full."""
        self.left = max(self.left - 1.0, -MOST_SAVED * self.max_error_rate)

    def merged(self, other: ErrorBudget) -> ErrorBudget:
        """Both together, where they were gathered apart: what both hold would count twice."""
        most = MOST_SAVED * self.max_error_rate
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        return ErrorBudget(self.max_error_rate, **sums | {"left": min(most, sums["left"])})

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible; the rate is the operator's and is not stored."""
        return {name: round(getattr(self, name), 6) for name in SUMS}

    @classmethod
    def from_dict(cls, max_error_rate: float, data: Mapping[str, Any]) -> ErrorBudget:
        """
        Raises:
            ValueError: not what ``to_dict`` makes.
        """
        try:
            budget = cls(max_error_rate, **{name: float(data[name]) for name in SUMS})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a budget: {error!r}") from error
        budget.left = min(budget.left, MOST_SAVED * max_error_rate)
        return budget


SUMS = ("left", "audits", "audited_wrong", "audited_bound")
