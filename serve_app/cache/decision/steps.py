"""The steps that ship, cheapest first. Each one's docstring says what must hold for a hit."""

from __future__ import annotations

from collections.abc import Callable, Collection

from serve_app.cache.cross_encoder import CrossEncoder
from serve_app.cache.decision.contract import NOTHING_AGAINST_IT, Finding, Pair
from serve_app.cache.entry import NOT_SIMILAR
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.tongue import language_of


class SimilarEnough:
    """The cosine of the embeddings reaches the threshold."""

    name = NOT_SIMILAR

    def __call__(self, pair: Pair) -> Finding:
        return NOTHING_AGAINST_IT if pair.similarity >= pair.threshold else Finding(self.name)


class HasWords:
    """Both texts have a letter or digit: otherwise there is an embedding, but no meaning to compare."""

    name = "no_words"

    def __call__(self, pair: Pair) -> Finding:
        both = (pair.question.text, pair.candidate.text)
        if all(any(character.isalnum() for character in text) for text in both):
            return NOTHING_AGAINST_IT
        return Finding(self.name)


class MeasuredLanguage:
    """Both texts are in a language in which hits were measured; ``languages`` are ISO 639-1 codes."""

    name = "unmeasured_language"

    def __init__(self, languages: Collection[str], lists: WordLists) -> None:
        self._languages = frozenset(languages)
        self._lists = lists

    def __call__(self, pair: Pair) -> Finding:
        for reading in (pair.question, pair.candidate):
            if language_of(reading.analysed, self._lists) not in self._languages:
                return Finding(self.name)
        return NOTHING_AGAINST_IT


class GuardStep:
    """No guard objects; the objection is the first guard's name."""

    name = "guards"

    def __call__(self, pair: Pair) -> Finding:
        if pair.objection is None:
            return NOTHING_AGAINST_IT
        return Finding(pair.objection, unsure=pair.may_be_synonyms)


class VerifierStep:
    """The shipped cross-encoder's calibrated probability that one answer serves both texts reaches ``least``.
    It takes some milliseconds on a CPU."""

    name = "verifier"

    def __init__(self, encoder: CrossEncoder, least: float) -> None:
        self._encoder = encoder
        self._least = least

    @property
    def record(self) -> tuple[tuple[float, float, float], ...]:
        """See :class:`~serve_app.cache.cross_encoder.card.Card`."""
        return self._encoder.card.record

    def __call__(self, pair: Pair) -> Finding:
        score = self._encoder.score(pair.candidate.text, pair.question.text, pair.similarity)
        return Finding(None if score >= self._least else self.name, score)


class CrossEncoderStep:
    """A cross-encoder's probability that one answer serves both texts reaches ``least``. It reads both texts
    together, the stored one first, which takes some milliseconds on a CPU."""

    name = "cross_encoder"

    def __init__(self, score: Callable[[str, str], float], least: float) -> None:
        self._score = score
        self._least = least

    def __call__(self, pair: Pair) -> Finding:
        score = self._score(pair.candidate.text, pair.question.text)
        return Finding(None if score >= self._least else self.name, score)
