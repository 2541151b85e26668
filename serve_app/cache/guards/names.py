"""Guard against another person, place or organisation, or two of them exchanged."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from serve_app.cache.guards.compare import MOST_PAIRS, entities, is_respelling
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.places import are_exchanged

_STEM = 4


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether each text names someone or something that the other does not; or only one does, and both
        compare (A, B and C differ in other ways than A and C); or two shared names are exchanged."""
        if a.lower == b.lower:
            return False
        ours, theirs = entities(a, lists.names), entities(b, lists.names)
        if not ours <= theirs and not theirs <= ours:
            return True
        if _capitals_mark_nouns(a, lists) or _capitals_mark_nouns(b, lists):
            return False
        known = ours & theirs
        left, right = _capitalised_only(a, b, known, lists), _capitalised_only(b, a, known, lists)
        if left and right:
            return not _same_names(left, right)
        if (left or right) and _compares(a, lists) and _compares(b, lists):
            return True
        return _exchanged(a, b, lists)

    return objects


def _compares(text: Text, lists: WordLists) -> bool:
    return not text.vocabulary.isdisjoint(lists.grammar["comparisons"])


def _capitals_mark_nouns(text: Text, lists: WordLists) -> bool:
    """Whether the text seems German, which capitalises every noun as English capitalises names."""
    german, english = lists.languages["de"], lists.languages["en"]
    return len(text.vocabulary & german) > len(text.vocabulary & english)


def _capitalised_only(text: Text, other: Text, known: AbstractSet[str], lists: WordLists) -> list[str]:
    """The words of ``text`` that are written like names, do not occur in ``other``, and are not a form of a
    ``known`` entity."""
    titles = lists.grammar["titles"]
    return [
        word
        for word in {text.words[index] for index in text.capitalised}
        if word not in other.vocabulary
        and word not in titles
        and word not in lists.function_words
        and word not in lists.negators
        and not word.isdigit()
        and not (word in lists.names.singles and not lists.names.of[word].isdisjoint(known))
        and not _is_spelled_out(word, other)
    ]


def _same_names(left: list[str], right: list[str]) -> bool:
    """Whether every name on the shorter side is some form of one on the other."""
    if len(left) * len(right) > MOST_PAIRS:
        return False
    shorter, longer = sorted((left, right), key=len)
    return all(any(_same_name(one, other) for other in longer) for one in shorter)


def _same_name(one: str, other: str) -> bool:
    """Whether one is a respelling of the other, or an adjective of the same stem ("Cuba", "Cuban")."""
    short = min(len(one), len(other))
    if short >= _STEM and one[: max(_STEM, short - 1)] == other[: max(_STEM, short - 1)]:
        return True
    return is_respelling(one, other)


def _is_spelled_out(word: str, other: Text) -> bool:
    """Whether ``word`` is made of the first letters of words that follow each other in ``other``."""
    return 2 <= len(word) <= 6 and word in "".join([one[0] for one in other.words])


def _exchanged(a: Text, b: Text, lists: WordLists) -> bool:
    """Whether two names that both texts have change places: "from X to Y", "from Y to X"."""
    names = {a.words[index] for index in a.capitalised} | {b.words[index] for index in b.capitalised}
    names |= (lists.names.singles & a.vocabulary) | (lists.names.singles & b.vocabulary)
    shared = names & a.vocabulary & b.vocabulary
    return len(shared) > 1 and are_exchanged(shared, a, b, lists)
