"""The words that are left of two texts after removing those for which the other text accounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from serve_app.cache.guards.compare import entities, is_respelling, stem
from serve_app.cache.guards.contract import Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.numbers import say_the_same
from serve_app.cache.guards.polarity import is_prefixed
from serve_app.cache.guards.quantities import is_number, is_unit

_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")
"""Thai, kana and Han: written without spaces, so each sign is looked at."""
_PIECES = re.compile(
    r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|[^\W\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]+"
)
_PARTICLES = frozenset("的了吗呢是我请在有么什怎样如何のはがをにでともかですますしてくださいよう")
_MOST_WORDS = 60
"""In longer texts this comparison cannot recognise a minimal edit; the limit also bounds its time."""

_CONTRASTS = (frozenset({"er", "ee"}), frozenset({"ers", "ees"}))
"""Endings that distinguish two words: an employer is not an employee."""
_SHORTEST_ROOT = 4
_SAFE_ROOT = 5
_INSIDE = 4
_INITIALS = range(2, 7)
_PREFIXES = (
    "un",
    "in",
    "im",
    "ir",
    "re",
    "de",
    "dis",
    "non",
    "anti",
    "under",
    "over",
    "hyper",
    "hypo",
    "hiper",
    "hipo",
)
_COUNTED = frozenset({"top", "best"})
_SPELLINGS = (
    ("colour", "color"),
    ("our", "or"),
    ("tre", "ter"),
    ("ise", "ize"),
    ("isa", "iza"),
    ("isi", "izi"),
    ("yse", "yze"),
    ("ogue", "og"),
    ("ence", "ense"),
    ("ll", "l"),
    ("ae", "e"),
)


@dataclass(frozen=True, slots=True)
class Residue:
    """``left`` and ``right``: the words of each text that nothing in the other accounts for. ``likeness``:
    how much of both is the same words in the same order, 0 to 1."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    likeness: float


def residue(a: Text, b: Text, lists: WordLists) -> Residue | None:
    """The residue of two texts; ``None`` if they are too long to compare word by word."""
    ours, theirs = _words(a), _words(b)
    if max(len(ours), len(theirs)) > _MOST_WORDS:
        return None
    base = lists.base
    stems_a, stems_b = [stem(word, base) for word in ours], [stem(word, base) for word in theirs]
    likeness = 2 * _in_order(stems_a, stems_b) / (len(stems_a) + len(stems_b) or 1)
    left = _unaccounted(ours, stems_a, theirs, stems_b, lists)
    right = _unaccounted(theirs, stems_b, ours, stems_a, lists)
    if left or right:
        named = _named_in_both(a, b, lists)
        left, right = _unnamed(left, a, b, named), _unnamed(right, b, a, named)
    return Residue(tuple(left), tuple(right), likeness)


def accounts_for(word: str, other: str, lists: WordLists) -> bool:
    """Whether ``other`` can replace ``word``: it is derived from it, near in meaning, or another spelling."""
    near = lists.near.get(word)
    if near is not None and not near.isdisjoint(lists.near.get(other, _NONE)):
        return True
    if other in lists.opposites.get(word, _NO_WORDS) or is_prefixed(word, other):
        return True  # whether a "not" makes up for it is for the guards of negations and opposites
    if word not in lists.known and _is_compound(word, other):
        return True
    if word[0] == other[0] and (
        is_derived(word, other, lists.grammar["endings"]) or _is_spelling(word, other)
    ):
        return True
    both_known = word in lists.known and other in lists.known
    return not both_known and is_respelling(word, other)


def is_derived(one: str, other: str, endings: AbstractSet[str]) -> bool:
    """Whether both words have one root: "install" and "installation", but not "employer" and "employee"."""
    shared = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared += 1
    if shared < _SHORTEST_ROOT:
        return False
    first, second = one[shared:], other[shared:]
    if shared < _SAFE_ROOT and len(first) + len(second) > _SAFE_ROOT:
        return False
    regular = (not first or first in endings) and (not second or second in endings)
    return regular and frozenset({first, second}) not in _CONTRASTS


def _is_compound(word: str, other: str) -> bool:
    """Whether ``word`` is a compound that ends in ``other``: "Backofen" and "Ofen"."""
    return len(other) >= _INSIDE and word.endswith(other) and not word.startswith(_PREFIXES)


def _is_spelling(one: str, other: str) -> bool:
    """Whether the words are the British and the American spelling of one word."""
    return any(
        one.replace(british, american) == other.replace(british, american) for british, american in _SPELLINGS
    )


def _named_in_both(a: Text, b: Text, lists: WordLists) -> set[str]:
    """The words of names that both texts name in some form ("USA", "United States"), and of quantities that
    are the same ("3 pm", "15:00")."""
    found: set[str] = set()
    for members in (lists.names, lists.alternatives):
        shared = entities(a, members) & entities(b, members)
        if shared:
            found.update(
                word
                for text in (a, b)
                for form in (*text.words, *map(" ".join, zip(text.words, text.words[1:], strict=False)))
                if not shared.isdisjoint(members.of.get(form, ()))
                for word in form.split()
            )
    if a.quantities and b.quantities and say_the_same(a.quantities, b.quantities):
        found.update(word for word in a.vocabulary | b.vocabulary if is_number(word) or is_unit(word))
    return found


def _unnamed(words: Iterable[str], text: Text, other: Text, named: AbstractSet[str]) -> list[str]:
    """``words`` without those ``named`` in both texts, acronyms of the other text's words, long forms of its
    acronyms, and counts as in "top 10"."""
    initials, theirs = ("".join([one[0] for one in side.words]) for side in (text, other))
    spelled = {
        one
        for acronym in other.vocabulary
        if len(acronym) in _INITIALS and (start := initials.find(acronym)) >= 0
        for one in text.words[start : start + len(acronym)]
    }
    return [
        word
        for word in words
        if word not in named
        and word not in spelled
        and not (len(word) in _INITIALS and word in theirs)
        and not (is_number(word) and _is_count_of_best(word, text))
    ]


def _is_count_of_best(number: str, text: Text) -> bool:
    """Whether the number only counts the best: "the top 10 sights" are the top sights."""
    words = _words(text)
    return words[max(0, words.index(number) - 1)] in _COUNTED


def _words(text: Text) -> tuple[str, ...]:
    if text.raw.isascii() or _UNSPACED.search(text.lower) is None:
        return text.words
    return tuple(_PIECES.findall(text.lower))


def _unaccounted(
    words: Sequence[str],
    stems: Sequence[str],
    others: Sequence[str],
    other_stems: Iterable[str],
    lists: WordLists,
) -> list[str]:
    there, there_stems, joined = set(others), set(other_stems), "".join(others)
    found: list[str] = []
    for word, root in zip(words, stems, strict=True):
        if word in there or root in there_stems or word in lists.light or word in _PARTICLES or word in found:
            continue
        if len(word) >= _INSIDE and word in joined:
            continue
        if not any(accounts_for(word, other, lists) for other in there):
            found.append(word)
    return found


def _in_order(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    before = [0] * (len(other) + 1)
    for word in one:
        row = [0]
        for index, mate in enumerate(other):
            row.append(before[index] + 1 if word == mate else max(before[index + 1], row[index]))
        before = row
    return before[-1]


_NONE: frozenset[int] = frozenset()
_NO_WORDS: frozenset[str] = frozenset()
