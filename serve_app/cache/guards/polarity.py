"""Whether one text negates the other: by a "not", a prefix, or an opposite."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from serve_app.cache.guards.compare import MOST_PAIRS, stem
from serve_app.cache.guards.contract import Text
from serve_app.cache.guards.lists import WordLists

_PREFIXES = frozenset({"un", "in", "im", "ir", "il", "dis", "non", "anti"})
_PRONOUNS = frozenset({"you", "we", "they", "i", "people", "the"})
_CONVERSE = frozenset({"before", "after", "more", "less", "above", "below", "over", "under"})


def negations(text: Text, lists: WordLists) -> int:
    """How often a text says "not" in a way that changes its meaning.

    Idioms ("or not", "not only", "no matter"), an answer's "No, …" and a negative question's first word
    ("Isn't it …?") do not count.
    """
    if lists.negators.isdisjoint(text.vocabulary):
        return 0
    words = text.words
    return sum(
        1
        for index, word in enumerate(words)
        if word in lists.negators and not _is_idle(text, index, word, lists)
    )


def _is_idle(text: Text, index: int, word: str, lists: WordLists) -> bool:
    words = text.words
    before = words[index - 1] if index else ""
    after = words[index + 1] if index + 1 < len(words) else ""
    if word == "not":
        if before in {"or", "why", "if"} and after in {"", "and", "why"}:
            return True
        if after in {"only", "just", "merely", "sure"}:
            return True
        return _is_tag(text, index, after, lists)
    if word == "no":
        return after == "matter" or after.isdigit() or text.gaps[index + 1].startswith(",")
    return word == "nothing" and after == "but"


def _is_tag(text: Text, index: int, after: str, lists: WordLists) -> bool:
    written = text.written[index].lower().partition("'")[0]
    if written in lists.grammar["contracted"]:
        return text.starts_sentence(index)
    return written == "don" and text.starts_sentence(index) and after in _PRONOUNS


def reversals(a: Text, b: Text, lists: WordLists) -> tuple[int, int]:
    """How many words of one text stand in the other with a negating prefix or ending, and how many have an
    opposite there. Words that negate by themselves are not among them: ``negations`` counts those."""
    left = a.vocabulary - b.vocabulary - lists.negators
    right = b.vocabulary - a.vocabulary - lists.negators
    if not left or not right or len(left) * len(right) > MOST_PAIRS:
        return 0, 0
    prefixed, opposed, open_ = 0, 0, set(right)
    for word in sorted(left):
        if (match := _prefixed(word, open_)) is not None:
            prefixed += 1
        elif (match := _opposite(word, open_, lists)) is not None:
            opposed += not (word in _CONVERSE and _sides_exchanged(a, word, b, match, lists))
        open_.discard(match or "")
    return prefixed, opposed


def is_negated(a: Text, b: Text, lists: WordLists) -> tuple[bool, bool]:
    """Whether only one text has a "not" or a similar word, and whether only one has an opposite."""
    prefixed, opposed = reversals(a, b, lists)
    return (negations(a, lists) - negations(b, lists) + prefixed) % 2 == 1, opposed % 2 == 1


def _opposite(word: str, others: AbstractSet[str], lists: WordLists) -> str | None:
    opposites = lists.opposites.get(word)
    return min(opposites & others, default=None) if opposites else None


def _prefixed(word: str, others: AbstractSet[str]) -> str | None:
    return next((other for other in sorted(others) if is_prefixed(word, other)), None)


def is_prefixed(one: str, other: str) -> bool:
    """Whether one word negates the other: "known" and "unknown", "helpful" and "helpless"."""
    if one.endswith(other):
        return one[: -len(other)] in _PREFIXES and len(other) > 2
    if other.endswith(one):
        return other[: -len(one)] in _PREFIXES and len(one) > 2
    if one.endswith("less") and len(one) > 6:
        return other in (one[:-4], f"{one[:-4]}ful", f"{one[:-4]}s")
    return (
        other.endswith("less")
        and len(other) > 6
        and one in (other[:-4], f"{other[:-4]}ful", f"{other[:-4]}s")
    )


def _sides_exchanged(a: Text, word: str, b: Text, opposite: str, lists: WordLists) -> bool:
    """Whether the texts are like "X before Y" and "Y after X", which say the same."""
    left, right = _sides(a.words, word, lists)
    left_b, right_b = _sides(b.words, opposite, lists)
    return bool(right and right_b) and bool(right <= left_b) and bool(right_b <= left)


def _sides(words: Iterable[str], middle: str, lists: WordLists) -> tuple[set[str], set[str]]:
    words = tuple(words)
    index = words.index(middle)
    return (
        {stem(word, lists.base) for word in words[:index] if word not in lists.function_words},
        {stem(word, lists.base) for word in words[index + 1 :] if word not in lists.function_words},
    )
