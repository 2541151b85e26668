"""Whether an entry may answer at a score, so that few of the cache's answers are wrong.

After vCache (Schroeder et al., "vCache: Verified Semantic Prompt Caching", arXiv 2502.03771): an operator
sets the largest share of wrong answers, the cache learns from comparing fresh answers with cached ones, and
explores where it does not know enough. In vCache each entry fits a logistic curve to its own observations,
and needs many of them before it may answer once. Here all entries share one curve of the error by score, and
each entry has a factor on it (in effect its own threshold) that starts at 1 and moves with the entry's own
observations: empirical Bayes with a gamma prior (Robbins, 1956; Efron & Morris, 1973).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from serve_app.cache.bound.blocked import BlockedPairs, is_refused
from serve_app.cache.bound.budget import ErrorBudget
from serve_app.cache.bound.evidence import EntryEvidence, Observation, feedback
from serve_app.cache.bound.population import PopulationEvidence

HOPELESS = 0.5
"""At scores where more than this share of the answers are wrong, there is little left to learn."""

ENOUGH = 64.0
SAMPLED = 0.2
"""After ``ENOUGH`` observations at such a score only ``SAMPLED`` of the requests are explored, which is
enough to notice a change."""

REPORT_PRIOR = 4.0
"""Right answers assumed in advance, to weigh against an operator's report, which counts as five wrong
answers."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``reuse``: answer from the entry. ``explore``: ask the engine and compare its answer with the entry's,
    to learn. ``bound`` is the upper bound of the share of wrong answers; ``reason`` is ``reuse``, ``audit``
    (a reuse that is explored instead: only audits show how often reuses are wrong), ``bound`` or
    ``blocked``."""

    reuse: bool
    explore: bool
    bound: float
    reason: str


@dataclass(slots=True)
class LearnedBound:
    """The policy and what it has learned. It has one writer; ``to_dict`` is what survives a restart.

    ``max_error_rate`` is the largest share of wrong answers among all reuses, in (0, 1).
    """

    max_error_rate: float
    population: PopulationEvidence = field(default_factory=PopulationEvidence)
    budget: ErrorBudget = field(init=False)
    blocked: BlockedPairs = field(default_factory=BlockedPairs)

    def __post_init__(self) -> None:
        if not 0 < self.max_error_rate < 1:
            raise ValueError(f"max_error_rate is {self.max_error_rate}; expected a number between 0 and 1")
        self.budget = ErrorBudget(self.max_error_rate)

    def decide(
        self, evidence: EntryEvidence, score: float, draw: float, pair: tuple[UUID, str] | None = None
    ) -> Decision:
        """Decide whether the entry may answer. ``draw`` is a random number from [0, 1); ``pair`` is the
        entry's id and the request's text. This changes nothing: the caller reports the outcome with
        ``reused`` and ``learn``."""
        if is_refused(self.blocked, evidence, pair):
            return Decision(False, False, 1.0, "blocked")
        bound = upper_bound(evidence, self.population, score)
        if not bound <= self.budget.limit():
            hopeless = self.population.error(score) > HOPELESS and self.population.count(score) >= ENOUGH
            return Decision(False, not hopeless or draw < SAMPLED, bound, "bound")
        if draw < self.budget.audit_share:
            return Decision(False, True, bound, "audit")
        return Decision(True, False, bound, "reuse")

    @property
    def learns(self) -> bool:
        return True

    def reused(self, decision: Decision) -> None:
        """Record that the entry answered."""
        self.budget.reused(decision.bound)

    def learn(
        self, evidence: EntryEvidence, score: float, right: bool, audited: float | None = None
    ) -> EntryEvidence:
        """Record the comparison of a fresh answer with the entry's; returns the entry's new evidence.
        ``audited`` is the decision's bound if its reason was ``audit``."""
        if audited is None:
            self.budget.idle()
        else:
            self.budget.observe(audited, right, self.population.false_alarm)
        self.population.observe(score, right, evidence)
        return evidence.with_observation(Observation(score, right))

    def learn_repeat(self, right: bool) -> None:
        """Record the comparison of two answers to the same text: a "wrong" there is noise."""
        self.population.observe_repeat(right)

    def report(
        self, evidence: EntryEvidence, score: float, right: bool, pair: tuple[UUID, str]
    ) -> EntryEvidence:
        """Record an operator's report on one reuse. It changes the entry, the pair and the budget, not the
        curve: people report mostly wrong answers, so shares of reports are not shares of answers."""
        if right:
            self.blocked.unblock(*pair)
        else:
            self.blocked.block(*pair)
            self.budget.reported_wrong()
        return feedback(evidence, score, right)

    def reported_wrong(self) -> None:
        """Record an operator's report on an entry that is dropped: only the budget learns."""
        self.budget.reported_wrong()

    def summary(self) -> dict[str, float]:
        """``limit``: the highest bound with which an entry answers now; ``calibration``: errors found by
        audits, divided by those predicted; ``false_alarm``: share of right answers that the comparison calls
        wrong."""
        seen = sum(self.population.right) + sum(self.population.wrong)
        return {
            "max_error_rate": self.max_error_rate,
            "limit": round(self.budget.limit(), 4),
            "calibration": round(self.budget.calibration, 3),
            "audits": self.budget.audits,
            "audit_share": round(self.budget.audit_share, 3),
            "observations": round(seen, 1),
            "false_alarm": round(self.population.false_alarm, 4),
            "blocked_pairs": len(self.blocked),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible, without the rate, which is a setting."""
        return {
            "population": self.population.to_dict(),
            "budget": self.budget.to_dict(),
            "blocked": self.blocked.to_list(),
        }

    @classmethod
    def from_dict(cls, max_error_rate: float, data: Mapping[str, Any]) -> LearnedBound:
        """
        Raises:
            ValueError: ``data`` was not made by ``to_dict``.
        """
        try:
            population, budget, blocked = (data[name] for name in ("population", "budget", "blocked"))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a learned bound: {error!r}") from error
        bound = cls(max_error_rate, PopulationEvidence.from_dict(population))
        bound.budget = ErrorBudget.from_dict(max_error_rate, budget)
        bound.blocked = BlockedPairs.from_list(blocked)
        return bound


def upper_bound(evidence: EntryEvidence, population: PopulationEvidence, score: float) -> float:
    """Upper bound of the probability that this entry's answer is wrong at this score; it never rises with the
    score.

    It is the population's bound times the entry's factor. The factor's prior is Gamma(k, k), and with
    ``wrong`` observations where the population expected ``expected`` its posterior mean is ``(k + wrong) / (k
    + expected)`` (the gamma-Poisson model). The mean is used, not an upper end, because errors of single
    entries average out over all reuses, and the population's do not. ``k`` is learned: if entries do not
    differ, none earns trust by luck. If ``k = 1`` gives a higher factor for an entry with errors, that factor
    is used.
    """
    error = population.error(score)
    if not evidence.observations:
        return error
    alarm = population.false_alarm
    truth = error / (error + (1.0 - error) * alarm) if error > 0 else 1.0
    wrong, expected = population.account(evidence.observations, truth)
    k = population.concentration
    factor = (k + wrong) / (k + expected)
    if wrong > expected:
        factor = max(factor, (1.0 + wrong) / (1.0 + expected))
    return max(min(1.0, error * factor), _reported(evidence, score))


def _reported(evidence: EntryEvidence, score: float) -> float:
    """The share of wrong answers according to reports: reports of wrong answers at this score or above,
    against right answers at this score or below, both of which hold even more at this score. It falls as the
    entry proves right."""
    reports = sum(o.weight for o in evidence.observations if o.is_report and not o.right and o.score >= score)
    if not reports:
        return 0.0
    right = sum(o.weight for o in evidence.observations if o.right and o.score <= score)
    return reports / (reports + right + REPORT_PRIOR)
