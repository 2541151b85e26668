"""A stream of requests with known answers, made of labelled pairs of texts.

Texts that pairs call the same, directly or through others, have one *meaning*, and every meaning has its own
answer. So an endpoint can be given the right answers, and each hit is right or wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from cache_lab.pairs import GROUPS, LabelledPair
from cache_lab.rates import MIXES, TRAFFIC

EXPONENT = 1.0
"""Exponent of the Zipf law by which pairs repeat."""

RIGHT, WRONG, UNLABELLED = "right", "wrong", "wrong, unlabelled"
"""What a stored text's answer is for a new text. Unlabelled: no pair says whether they mean the same."""

OPENERS = ("Sure.", "Here is what I found.", "Good question.", "In short:")
SUBJECTS = "clerk pilot farmer tailor sailor miner baker judge nurse painter porter weaver"
VERBS = "visits repairs paints follows measures carries records admires guards describes"
OBJECTS = "bridge orchard harbour kettle lantern archive tunnel meadow clock violin ladder granary"
PLACES = "river station market castle forest valley island chapel quarry library"
SENTENCES = 3


@dataclass(frozen=True, slots=True)
class Question:
    """Texts with the same ``meaning`` have the same answer."""

    text: str
    meaning: int


class Meanings:
    """Which texts share an answer."""

    def __init__(self, pairs: Sequence[LabelledPair]) -> None:
        parents: dict[str, str] = {}
        for pair in pairs:
            query, candidate = _root(parents, pair.query), _root(parents, pair.candidate)
            if pair.same:
                parents[query] = candidate
        numbers: dict[str, int] = {}
        self._of = {text: numbers.setdefault(_root(parents, text), len(numbers)) for text in list(parents)}
        self._differ = {
            frozenset((self._of[pair.query], self._of[pair.candidate])) for pair in pairs if not pair.same
        }

    def __getitem__(self, text: str) -> int:
        """Raises:
        KeyError: the text is in no pair.
        """
        return self._of[text]

    def __contains__(self, text: str) -> bool:
        return text in self._of

    def outcome(self, asked: int, stored: str) -> str:
        """Whether the stored text's answer is right for a new text of the meaning ``asked``. A pair that
        calls two texts different says so of all texts with their meanings; meanings that no pair compares
        may still be the same."""
        if stored not in self._of:
            return UNLABELLED
        meanings = frozenset((asked, self._of[stored]))
        if len(meanings) == 1:
            return RIGHT
        return WRONG if meanings in self._differ else UNLABELLED


def stream(
    pairs: Sequence[LabelledPair], count: int, seed: int, mix: Mapping[str, float] = MIXES[TRAFFIC]
) -> Iterator[Question]:
    """``count`` requests. Each takes a group by the mix, a pair of it by Zipf's law (in an order from the
    seed), and one of its two texts. So a request is a repeat, a paraphrase of an earlier one, or only similar
    to one."""
    random, meanings = Random(seed), Meanings(pairs)
    groups = {group: [pair for pair in pairs if pair.group == group] for group in GROUPS}
    present = [group for group in GROUPS if groups[group]]
    for group in present:
        random.shuffle(groups[group])
    weights = {group: _zipf(len(groups[group])) for group in present}
    shares = [mix[group] for group in present]
    for _ in range(count):
        (group,) = random.choices(present, shares)
        (pair,) = random.choices(groups[group], cum_weights=weights[group])
        text = random.choice((pair.query, pair.candidate))
        yield Question(text, meanings[text])


def answer_to(meaning: int, random: Random, variation: float) -> str:
    """The answer of a meaning: always the same sentences. In a share ``variation`` of the calls they have
    another order and an opener, as a model words the same answer differently."""
    fixed = Random(meaning)
    sentences = [_sentence(fixed) for _ in range(SENTENCES)]
    if random.random() >= variation:
        return " ".join(sentences)
    random.shuffle(sentences)
    return " ".join([random.choice(OPENERS), *sentences])


def _sentence(random: Random) -> str:
    subject, verb, thing, place = (
        random.choice(words.split()) for words in (SUBJECTS, VERBS, OBJECTS, PLACES)
    )
    return f"The {subject} {verb} the {thing} near the {place}."


def _zipf(count: int) -> list[float]:
    """Cumulative weights of ranks 1 to ``count``."""
    return list(accumulate(1 / rank**EXPONENT for rank in range(1, count + 1)))


def _root(parents: dict[str, str], text: str) -> str:
    parents.setdefault(text, text)
    while parents[text] != text:
        parents[text] = parents[parents[text]]
        text = parents[text]
    return text
