"""Look-ups of texts among each other: what a cache meets, the nearest of many other questions.

The different questions that an author writes beside a text are few, and farther from it than the nearest of a
thousand others. So each text of some pairs is looked up among all the other texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cache_lab.pairs import LabelledPair, read_pairs
from serve_app.cache.decision import Decision

JUDGED = Path(__file__).parent / "data" / "nearest" / "judged.tsv"
"""What a reader said of the nearest texts that hit. A pair that it lacks counts as different."""

CANDIDATES = 3
"""The entries of a look-up that the decision sees."""

ROWS = 512
NOWHERE = -2.0


class LooksUp(Protocol):
    def to_look_up(self, text: str) -> Any: ...


@dataclass(frozen=True)
class Among:
    """Look-ups, and how many of them hit: a text with the same answer, or another."""

    look_ups: int
    right: int
    wrong: int
    unjudged: int
    """Of the wrong ones: nobody has read the pair."""

    @property
    def wrong_share(self) -> float:
        return self.wrong / self.look_ups if self.look_ups else 0.0


def look_up(
    pairs: Sequence[LabelledPair], decision: Decision, vectors: LooksUp, judged: Sequence[LabelledPair]
) -> Among:
    """Look each text up among the others. As in service, the first candidate that passes answers."""
    known: dict[frozenset[str], bool] = {_key(pair.query, pair.candidate): pair.same for pair in judged}
    hits, count = list[bool | None](), 0
    for text, nearest in nearest_others(pairs, vectors):
        count += 1
        question = decision.read(text)
        passing = (
            other for other, cosine in nearest if decision.judge(question, decision.read(other), cosine).hit
        )
        hit = next(passing, None)
        if hit is not None:
            hits.append(known.get(_key(text, hit)))
    return Among(count, hits.count(True), hits.count(False) + hits.count(None), hits.count(None))


def nearest_others(
    pairs: Sequence[LabelledPair], vectors: LooksUp
) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Each text that can be looked up, and its nearest others with their cosines: without its partners in
    ``pairs``, of which the list says what they are, and without texts that are the same letters."""
    partners: dict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        partners[pair.query].add(pair.candidate)
        partners[pair.candidate].add(pair.query)
    found = {text: vectors.to_look_up(text) for text in sorted(partners)}
    texts = [text for text, vector in found.items() if vector is not None]
    matrix = np.stack([found[text] for text in texts])
    spelled: dict[str, list[int]] = defaultdict(list)
    for at, text in enumerate(texts):
        spelled[text.casefold()].append(at)
    for begin in range(0, len(texts), ROWS):
        cosines = matrix[begin : begin + ROWS] @ matrix.T
        for text, row in zip(texts[begin : begin + ROWS], cosines, strict=True):
            for other in (text, *partners[text]):
                row[spelled.get(other.casefold(), [])] = NOWHERE
            nearest = [int(at) for at in np.argsort(-row)[:CANDIDATES] if row[at] > NOWHERE]
            yield text, [(texts[at], float(row[at])) for at in nearest]


def read_judged(path: Path = JUDGED) -> list[LabelledPair]:
    return read_pairs(path)


def _key(one: str, other: str) -> frozenset[str]:
    return frozenset((one, other))
