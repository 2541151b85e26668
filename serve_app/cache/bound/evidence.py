"""The evidence on one entry: the scores at which it was tried, and whether its answer was right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEPT_OBSERVATIONS = 32
"""Per entry; about 600 bytes of JSON in the entry's payload."""

REPORT_WEIGHT = 5.0
"""An operator's report counts as this many comparisons of answers."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One try: the verifier's score (or the cosine) of a request and the entry, and whether the entry's
    answer was right for it. ``weight`` is above 1 for a person's report, which is free of the comparison's
    noise."""

    score: float
    right: bool
    weight: float = 1.0

    @property
    def is_report(self) -> bool:
        return self.weight > 1.0


@dataclass(frozen=True, slots=True)
class EntryEvidence:
    """The newest observations of one entry, oldest first, and the total number of observations."""

    observations: tuple[Observation, ...] = ()
    right: int = 0
    wrong: int = 0

    def __bool__(self) -> bool:
        """Whether there are observations."""
        return bool(self.observations)

    def with_observation(self, observation: Observation) -> EntryEvidence:
        kept = (*self.observations, observation)[-KEPT_OBSERVATIONS:]
        return EntryEvidence(kept, self.right + observation.right, self.wrong + (not observation.right))

    def merged(self, other: EntryEvidence) -> EntryEvidence:
        """The union of two sets of evidence, which must not have observations in common. Each side keeps its
        newest half, or more if the other has less."""
        theirs = min(len(other.observations), KEPT_OBSERVATIONS // 2)
        ours = min(len(self.observations), KEPT_OBSERVATIONS - theirs)
        theirs = min(len(other.observations), KEPT_OBSERVATIONS - ours)
        kept = (*_newest(self.observations, ours), *_newest(other.observations, theirs))
        return EntryEvidence(kept, self.right + other.right, self.wrong + other.wrong)

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible; ``from_dict`` reads it back, with scores to four digits."""
        seen = [[round(o.score, 4), int(o.right), o.weight] for o in self.observations]
        return {"seen": seen, "right": self.right, "wrong": self.wrong}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EntryEvidence:
        """
        Raises:
            ValueError: ``data`` was not made by ``to_dict``.
        """
        try:
            seen = tuple(Observation(float(s), bool(r), float(w)) for s, r, w in data["seen"])
            return cls(seen[-KEPT_OBSERVATIONS:], int(data["right"]), int(data["wrong"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not an entry's evidence: {error!r}") from error


def feedback(evidence: EntryEvidence, score: float, right: bool) -> EntryEvidence:
    """The evidence after an operator reported the entry's answer as right or wrong at this score."""
    return evidence.with_observation(Observation(score, right, REPORT_WEIGHT))


def _newest(observations: Sequence[Observation], count: int) -> Sequence[Observation]:
    return observations[len(observations) - count :]
