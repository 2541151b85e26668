"""Guard against another script, or another language in the same script."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping

from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists

_BLOCKS = (
    (0x0000, "latin"),
    (0x0370, "greek"),
    (0x0400, "cyrillic"),
    (0x0530, "armenian"),
    (0x0590, "hebrew"),
    (0x0600, "arabic"),
    (0x0780, "other"),
    (0x0900, "devanagari"),
    (0x0980, "indic"),
    (0x0E00, "thai"),
    (0x0E80, "other"),
    (0x10A0, "georgian"),
    (0x1100, "hangul"),
    (0x1200, "other"),
    (0x1E00, "latin"),
    (0x1F00, "greek"),
    (0x2000, "other"),
    (0x3040, "kana"),
    (0x3100, "other"),
    (0x3400, "han"),
    (0xA000, "other"),
    (0xAC00, "hangul"),
    (0xD800, "other"),
    (0xF900, "han"),
    (0xFB00, "other"),
    (0xFF21, "latin"),
    (0xFF66, "kana"),
    (0xFFA0, "other"),
    (0x20000, "han"),
    (0x32000, "other"),
)
_STARTS = tuple(start for start, _ in _BLOCKS)
_LOOKED_AT = 400
_CLEAR = 2


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        return scripts_differ(a, b) or languages_differ(a.vocabulary, b.vocabulary, lists.languages)

    return objects


def scripts_differ(a: Text, b: Text) -> bool:
    if a.raw.isascii() and b.raw.isascii():
        return False
    ours, theirs = script(a.raw), script(b.raw)
    return ours != theirs and "" not in (ours, theirs)


def script(text: str) -> str:
    """The script of most of the first letters; "" without letters. Japanese counts as kana even if most of
    its letters are Han."""
    counts = Counter(_script_of(letter) for letter in text[:_LOOKED_AT] if letter.isalpha())
    if not counts:
        return ""
    counts["kana"] += counts["han"] if counts["kana"] else 0
    return max(counts, key=lambda name: counts[name])


def _script_of(letter: str) -> str:
    return "latin" if letter < "\u0370" else _BLOCKS[bisect_right(_STARTS, ord(letter)) - 1][1]


def languages_differ(
    ours: frozenset[str], theirs: frozenset[str], languages: Mapping[str, frozenset[str]]
) -> bool:
    """Whether each text has clearly more function words of its own language than of the other's."""
    english = languages["en"]
    if len(ours & english) > _CLEAR and len(theirs & english) > _CLEAR:
        return False
    left = {name: len(ours & words) for name, words in languages.items()}
    right = {name: len(theirs & words) for name, words in languages.items()}
    one = max(left, key=lambda name: left[name])
    other = max(right, key=lambda name: right[name])
    return left[one] - left[other] >= _CLEAR and right[other] - right[one] >= _CLEAR
