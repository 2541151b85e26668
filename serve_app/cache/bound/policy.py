"""What the cache asks before it gives a near entry: with a learned bound, or with none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from serve_app.cache.bound.blocked import BlockedPairs
from serve_app.cache.bound.evidence import EntryEvidence
from serve_app.cache.bound.model import Decision, LearnedBound
from serve_app.cache.bound.population import PopulationEvidence

Pair = tuple[UUID, str]
"""An entry's id and a request's text."""


class ReusePolicy(Protocol):
    """Whether a near entry that the decision lets through may answer, and what is learned of it. Pure but for
    its own state; one writer."""

    @property
    def learns(self) -> bool:
        """Whether fresh answers are compared with cached ones at all."""

    def decide(
        self, evidence: EntryEvidence, score: float, draw: float, pair: Pair | None = None
    ) -> Decision: ...

    def reused(self, decision: Decision) -> None: ...

    def learn(
        self, evidence: EntryEvidence, score: float, right: bool, audited: float | None = None
    ) -> EntryEvidence: ...

    def learn_repeat(self, right: bool) -> None:
        """The very same text was answered anew: does the comparison find the answers the same?"""

    def report(self, evidence: EntryEvidence, score: float, right: bool, pair: Pair) -> EntryEvidence: ...

    def reported_wrong(self) -> None:
        """A person says that a reuse was wrong, and its entry is gone."""

    def summary(self) -> dict[str, float]:
        """For people: what was learned, in numbers."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class Unbounded:
    """Every near entry that the decision lets through answers, but for pairs that were reported as wrong.
    ``kept`` is what a bound had learned before it was switched off."""

    blocked: BlockedPairs = field(default_factory=BlockedPairs)
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def learns(self) -> bool:
        return False

    def decide(
        self, evidence: EntryEvidence, score: float, draw: float, pair: Pair | None = None
    ) -> Decision:
        if pair is not None and self.blocked.is_blocked(*pair):
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
    """The policy for a rate (``None``: no bound), with what an earlier one saved by ``to_dict``, else with
    what the verifier's ``record`` lets expect.

    Raises:
        ValueError: ``saved`` is not what a policy saves.
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
