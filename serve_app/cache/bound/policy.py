"""The last check before a near entry answers: with a learned bound, or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from serve_app.cache.bound.blocked import BlockedPairs, is_refused
from serve_app.cache.bound.evidence import EntryEvidence
from serve_app.cache.bound.model import Decision, LearnedBound
from serve_app.cache.bound.population import PopulationEvidence

Pair = tuple[UUID, str]
"""An entry's id and a request's text."""


class ReusePolicy(Protocol):
    """Decides whether a near entry that the decision accepted may answer, and learns from the outcome. It
    changes only its own state, and has one writer."""

    @property
    def learns(self) -> bool:
        """Whether fresh answers are to be compared with cached ones."""

    def decide(
        self, evidence: EntryEvidence, score: float, draw: float, pair: Pair | None = None
    ) -> Decision: ...

    def reused(self, decision: Decision) -> None: ...

    def learn(
        self, evidence: EntryEvidence, score: float, right: bool, audited: float | None = None
    ) -> EntryEvidence: ...

    def learn_repeat(self, right: bool) -> None:
        """Record whether the comparison finds two answers to the same text equal."""

    def report(self, evidence: EntryEvidence, score: float, right: bool, pair: Pair) -> EntryEvidence: ...

    def reported_wrong(self) -> None:
        """Record that a reuse was reported as wrong and its entry dropped."""

    def summary(self) -> dict[str, float]:
        """What was learned, in numbers for people."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class Unbounded:
    """Every near entry that the decision accepts answers, except pairs that were reported as wrong. ``kept``
    is what a bound had learned before it was switched off."""

    blocked: BlockedPairs = field(default_factory=BlockedPairs)
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def learns(self) -> bool:
        return False

    def decide(
        self, evidence: EntryEvidence, score: float, draw: float, pair: Pair | None = None
    ) -> Decision:
        if is_refused(self.blocked, evidence, pair):
            return Decision(False, False, 1.0, "blocked")
        return Decision(True, False, 1.0, "reuse")

    def reused(self, decision: Decision) -> None:
        """Nothing is accounted for."""

    def learn(
        self, evidence: EntryEvidence, score: float, right: bool, audited: float | None = None
    ) -> EntryEvidence:
        return evidence

    def learn_repeat(self, right: bool) -> None:
        """Nothing is learned."""

    def report(self, evidence: EntryEvidence, score: float, right: bool, pair: Pair) -> EntryEvidence:
        if right:
            self.blocked.unblock(*pair)
        else:
            self.blocked.block(*pair)
        return evidence

    def reported_wrong(self) -> None:
        """Nothing is accounted for."""

    def summary(self) -> dict[str, float]:
        return {"blocked_pairs": len(self.blocked)}

    def to_dict(self) -> dict[str, Any]:
        return {**self.kept, "blocked": self.blocked.to_list()}


def reuse_policy(
    max_error_rate: float | None,
    saved: Mapping[str, Any] | None = None,
    record: Sequence[tuple[float, float, float]] = (),
) -> ReusePolicy:
    """The policy for a rate (``None``: no bound). It starts from what an earlier policy saved with
    ``to_dict``, else from the verifier's ``record``.

    Raises:
        ValueError: ``saved`` was not made by ``to_dict``.
    """
    expected = PopulationEvidence.expecting(record)
    if saved is None:
        return Unbounded() if max_error_rate is None else LearnedBound(max_error_rate, expected)
    if max_error_rate is not None and "population" in saved:
        return LearnedBound.from_dict(max_error_rate, saved)
    blocked = BlockedPairs.from_list(saved.get("blocked", ()))
    if max_error_rate is not None:
        return LearnedBound(max_error_rate, expected, blocked=blocked)
    return Unbounded(blocked, {name: value for name, value in saved.items() if name != "blocked"})
