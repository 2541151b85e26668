"""The step for languages without a verifier: free rewordings may hit, light edits may not.

Among pairs in ten languages that pass the guards, light edits are mostly other questions ("one conversation",
"all conversations"), and their cosines are the highest. A question in other words that is still very near is
mostly the same one. So the texts must be near, and must not look alike by the letters in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from serve_app.cache.decision.contract import NOTHING_AGAINST_IT, Finding, Pair
from serve_app.cache.guards.language import script

PIECE, DENSE_PIECE = 3, 2
"""Letters in a piece of text; two in scripts where one sign is a word or most of a word."""

DENSE_SCRIPTS = frozenset({"han", "kana"})


@dataclass(frozen=True, slots=True)
class Alone:
    """What an embedder without a verifier needs: the least cosine of a hit, and the likeness (0 to 1)
    from which on two texts count as a light edit."""

    least_cosine: float
    most_likeness: float


MEASURED: Mapping[str, Alone] = MappingProxyType({"multilingual-e5-small": Alone(0.93, 0.45)})
"""Values by the last part of the embedder's source; docs/benchmarks.md says on what they were measured."""


def measured_alone(embedder: str) -> Alone | None:
    """The values for an embedder's ``source`` (a hub id, or a prepared folder of that name), or ``None``."""
    return MEASURED.get(embedder.rstrip("/").rpartition("/")[2].rpartition("--")[2])


class Reworded:
    """The texts have the same letters, or do not look alike."""

    name = "light_edit"

    def __init__(self, most_likeness: float) -> None:
        self._most = most_likeness

    def __call__(self, pair: Pair) -> Finding:
        one, other = letters(pair.question.text), letters(pair.candidate.text)
        if one == other or likeness(one, other) < self._most:
            return NOTHING_AGAINST_IT
        return Finding(self.name)


def letters(text: str) -> str:
    """The letters and digits of a text, in one case."""
    return "".join(character for character in text.casefold() if character.isalnum())


def likeness(one: str, other: str) -> float:
    """The share of pieces of letters that both texts have (Dice), from 0 to 1; 0 for two empty texts."""
    ours, theirs = _pieces(one), _pieces(other)
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else 0.0


def _pieces(text: str) -> Counter[str]:
    size = DENSE_PIECE if script(text) in DENSE_SCRIPTS else PIECE
    if not text:
        return Counter()
    return Counter(text[start : start + size] for start in range(max(1, len(text) - size + 1)))
