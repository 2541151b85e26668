"""Guard against a minimal edit: nearly the same words in the same order, and an unexplained difference.

Either one text has a word that nothing in the other accounts for, or the same words mean something else:
two words change places, a "no" stands before another word, "may I" becomes "how do I".
"""

from __future__ import annotations

from serve_app.cache.guards.compare import stem
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.places import is_symmetric
from serve_app.cache.guards.residue import Residue, accounts_for, residue

NAME = "edit"

ALIKE = 0.62
"""If two texts have at least this share of words in common, in the same order, one is an edit of the other,
not a rewording."""

_OPENINGS = {
    "can": "may",
    "could": "may",
    "may": "may",
    "might": "may",
    "must": "must",
    "should": "should",
    "ought": "should",
    "how": "how",
}
_DENIALS = frozenset({"not", "no", "without"})
_LINKS = frozenset({"and", "or", "vs", "versus", "between", "than"})
_PARTICLES = (frozenset({"on", "off"}), frozenset({"up", "down"}), frozenset({"in", "out"}))


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        if a.words == b.words or not a.words or not b.words:
            return False
        rest = residue(a, b, lists)
        if rest is None or rest.likeness < ALIKE:
            return False
        return bool(rest.left or rest.right) or _is_shifted(a, b, lists)

    return objects


def is_one_word(rest: Residue) -> bool:
    """Whether each text has one plain word that the other lacks: they may be two names of one thing."""
    return all(len(side) == 1 and side[0].isalpha() and len(side[0]) > 2 for side in (rest.left, rest.right))


def _is_shifted(a: Text, b: Text, lists: WordLists) -> bool:
    return (
        _openings_differ(a, b)
        or _particles_differ(a, b)
        or (_are_swapped(a.words, b.words) and not is_symmetric(a, lists))
        or _denials_differ(a, b, lists)
    )


def _openings_differ(a: Text, b: Text) -> bool:
    """Whether one text opens with "may I …" and the other with "must I …" or "how do I …"."""
    kinds = {_opening(a), _opening(b)}
    return "" not in kinds and len(kinds) == 2


def _opening(text: Text) -> str:
    if "allowed" in text.vocabulary and text.words[0] in {"am", "is", "are"}:
        return "may"
    kind = _OPENINGS.get(text.words[0], "")
    if kind == "how" and (len(text.words) < 2 or text.words[1] not in {"do", "does", "to"}):
        return ""
    return kind


def _particles_differ(a: Text, b: Text) -> bool:
    """Whether the texts differ in a particle: "turn on" and "turn off"."""
    return any(pair & (a.vocabulary ^ b.vocabulary) == pair for pair in _PARTICLES)


def _are_swapped(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Whether two words changed places and nothing else differs; "X or Y" for "Y or X" does not count."""
    if len(ours) != len(theirs):
        return False
    apart = [index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    if len(apart) != 2:
        return False
    first, last = apart
    return ours[first] == theirs[last] and ours[last] == theirs[first] and _LINKS.isdisjoint(ours[first:last])


def _denials_differ(a: Text, b: Text, lists: WordLists) -> bool:
    """Whether both texts have a "not" or "no", but before different words: "a wife and no children"."""
    ours, theirs = _denied(a, lists), _denied(b, lists)
    if not ours or not theirs:
        return False
    return not any(
        stem(one, lists.base) == stem(other, lists.base) or accounts_for(one, other, lists)
        for one in ours
        for other in theirs
    )


def _denied(text: Text, lists: WordLists) -> set[str]:
    """The content words that follow a denial."""
    if _DENIALS.isdisjoint(text.vocabulary):
        return set()
    words, found = text.words, set[str]()
    for index, word in enumerate(words):
        if word in _DENIALS:
            found.update([one for one in words[index + 1 :] if one not in lists.function_words][:1])
    return found
