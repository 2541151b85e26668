"""Comparisons of words and texts that several guards share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from serve_app.cache.guards.contract import Text
from serve_app.cache.guards.lists import Members, WordLists

_ENDINGS = ("ings", "ing", "ies", "ied", "ers", "er", "est", "es", "ed", "ly", "s", "e", "y")
SHORTEST_STEM = 3
LONG = 5
MOST_PAIRS = 2_500
"""Texts that differ in more pairs of words than this are not compared word by word."""


def stem(word: str, base: Mapping[str, str]) -> str:
    """The form that inflections of one word share; often not a word itself."""
    word = base.get(word, word)
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= SHORTEST_STEM:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > SHORTEST_STEM and word[-1] == word[-2] else word


def is_transposed(one: str, other: str) -> bool:
    """Whether two neighbouring letters are exchanged, and nothing else differs."""
    if len(one) != len(other) or one == other:
        return False
    start = next(index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
    return one[start : start + 2] == other[start : start + 2][::-1] and one[start + 2 :] == other[start + 2 :]


def is_respelling(one: str, other: str) -> bool:
    """Whether two neighbouring letters are exchanged or, in longer words, one letter is added, removed or
    replaced."""
    shorter = min(len(one), len(other))
    if abs(len(one) - len(other)) > 1 or shorter < SHORTEST_STEM or one.isdigit() or other.isdigit():
        return False
    if is_transposed(one, other):
        return True
    if shorter < LONG:
        return False
    start = 0
    while start < shorter and one[start] == other[start]:
        start += 1
    left, right = one[start:], other[start:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:]


def same_word(one: str, other: str, base: Mapping[str, str]) -> bool:
    """Whether both are inflections or respellings of one word."""
    return one == other or stem(one, base) == stem(other, base) or is_respelling(one, other)


def are_yes_no(a: Text, b: Text, lists: WordLists) -> bool:
    """Whether both begin like a yes-or-no question."""
    auxiliaries = lists.grammar["auxiliaries"]
    return all(text.words and text.words[0] in auxiliaries for text in (a, b))


def exclusive(a: Text, b: Text, lists: WordLists) -> tuple[list[str], list[str]]:
    """The content words that only one of the texts has in any form."""
    left = sorted(a.vocabulary - b.vocabulary - lists.function_words)
    right = sorted(b.vocabulary - a.vocabulary - lists.function_words)
    in_b = {stem(word, lists.base) for word in b.vocabulary} if left else set()
    in_a = {stem(word, lists.base) for word in a.vocabulary} if right else set()
    left = [word for word in left if stem(word, lists.base) not in in_b]
    right = [word for word in right if stem(word, lists.base) not in in_a]
    if len(left) * len(right) > MOST_PAIRS:
        return left, right
    for word in tuple(left):
        match = next((other for other in right if is_respelling(word, other)), None)
        if match is not None:
            left.remove(word)
            right.remove(match)
    return left, right


def entities(text: Text, members: Members) -> set[str]:
    """The entities of a list that ``text`` names, by one word or by two in a row; two words that name
    an entity together are not also read alone."""
    singles = members.singles & text.vocabulary
    pairs = members.firsts & text.vocabulary
    if not pairs:
        return {entity for word in singles for entity in members.of[word]}
    found: set[str] = set()
    taken: set[str] = set()
    for first, second in zip(text.words, text.words[1:], strict=False):
        if first in pairs and (named := members.of.get(f"{first} {second}")):
            found |= named
            taken.update((first, second))
    return found.union(*(members.of[word] for word in singles - taken))


def content(text: Text, lists: WordLists) -> Iterator[int]:
    """The indices of the words that carry content."""
    function_words = lists.function_words
    return (index for index, word in enumerate(text.words) if word not in function_words)
