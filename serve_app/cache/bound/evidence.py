"""The evidence on one entry: the scores at which it was tried, and whether its answer was right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

KEPT_REFUSED = 32
"""The most refused texts kept for one entry; about 1 KB of JSON."""

KEPT_OBSERVATIONS = 32
"""The most observations kept for one entry; about 600 bytes of JSON in its payload."""

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
    """The newest observations of one entry, oldest first, and the total number of observations. ``refused``:
    hashes of the texts for which its tenant's users said that its answer is wrong. They are kept here, not
    with the pairs that operators report, so that one tenant's reports cannot displace another's."""

    observations: tuple[Observation, ...] = ()
    right: int = 0
    wrong: int = 0
    refused: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any evidence."""
        return bool(self.observations or self.refused)

    def with_refused(self, hashed: str, *, wrong: bool) -> EntryEvidence:
        """The evidence after a user said that the answer is wrong for the text with this hash, or (``wrong``
        is false) took that back."""
        others = tuple(each for each in self.refused if each != hashed)
        return replace(self, refused=(*others, hashed)[-KEPT_REFUSED:] if wrong else others)

    def with_observation(self, observation: Observation) -> EntryEvidence:
        kept = (*self.observations, observation)[-KEPT_OBSERVATIONS:]
        right, wrong = self.right + observation.right, self.wrong + (not observation.right)
        return EntryEvidence(kept, right, wrong, self.refused)

    def merged(self, other: EntryEvidence) -> EntryEvidence:
        """The union of two sets of evidence, which must not have observations in common. Each side keeps its
        newest half, or more if the other has less."""
        theirs = min(len(other.observations), KEPT_OBSERVATIONS // 2)
        ours = min(len(self.observations), KEPT_OBSERVATIONS - theirs)
        theirs = min(len(other.observations), KEPT_OBSERVATIONS - ours)
        kept = (*_newest(self.observations, ours), *_newest(other.observations, theirs))
        refused = tuple(dict.fromkeys((*other.refused, *self.refused)))[-KEPT_REFUSED:]
        return EntryEvidence(kept, self.right + other.right, self.wrong + other.wrong, refused)

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible; ``from_dict`` reads it back, with scores to four digits."""
        seen = [[round(o.score, 4), int(o.right), o.weight] for o in self.observations]
        refused = {"refused": list(self.refused)} if self.refused else {}
        return {"seen": seen, "right": self.right, "wrong": self.wrong, **refused}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EntryEvidence:
        """
        Raises:
            ValueError: ``data`` was not made by ``to_dict``.
        """
        try:
            seen = tuple(Observation(float(s), bool(r), float(w)) for s, r, w in data["seen"])
            refused = tuple(map(str, data.get("refused", ())))[-KEPT_REFUSED:]
            return cls(seen[-KEPT_OBSERVATIONS:], int(data["right"]), int(data["wrong"]), refused)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not an entry's evidence: {error!r}") from error


def feedback(evidence: EntryEvidence, score: float, right: bool) -> EntryEvidence:
    """The evidence after an operator reported the entry's answer as right or wrong at this score."""
    return evidence.with_observation(Observation(score, right, REPORT_WEIGHT))


def _newest(observations: Sequence[Observation], count: int) -> Sequence[Observation]:
    return observations[len(observations) - count :]
