"""Whether a fresh answer says the same as a cached one."""

from __future__ import annotations

import math
import re
import unicodedata
from enum import Enum

SAME_COSINE = 0.92
DIFFERENT_COSINE = 0.60
"""For all-MiniLM-L6-v2. Of 514 pairs of statements (two thirds different, most of those made to look alike)
0.60 called 2 % of the same different. 0.92 called 55 % of the same the same, and 11 % of the different; 0.95
would 33 % and 7 %, 0.85 84 % and 15 %: other names in one sentence, which no cosine shows.
"""

MARKS = re.compile(r"^[ \t]*(?:[-*+>#]+|\d{1,2}[.)])[ \t]+", re.MULTILINE)
"""Markdown at the beginning of a line: bullets, quotes, headings, and the numbers of a list."""

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.:/]\d+)*")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
TOKEN = re.compile(r"(?<!\w)-?\d+(?:[.:/]\d+)*|[^\W_]+(?:['’][^\W_]+)*|[%$€£+/=<^°]")
"""A number with its sign, a word, or a symbol that changes what stands beside it."""

CODE = "```"
YES = frozenset({"yes", "yeah", "yep", "true", "correct", "certainly", "absolutely", "definitely"})
NO = frozenset({"no", "nope", "false", "incorrect"})
NEGATIONS = frozenset({"not", "no", "never", "cannot", "without", "none", "neither", "nor", "nothing"})


class _Numbers(Enum):
    EQUAL = 1
    PARTLY = 2
    CONFLICT = 3


def same_answer(
    fresh: str,
    cached: str,
    cosine: float | None,
    same_from: float = SAME_COSINE,
    different_below: float = DIFFERENT_COSINE,
) -> bool | None:
    """Whether both answers say the same; ``None`` if that cannot be told.

    ``cosine`` is that of the two answers' embeddings, or ``None`` where there are none. In order: equal
    but for case, space, punctuation and markdown is the same (with code in it, only space may differ);
    another polarity ("yes", "no") or another number is not; then the cosine decides, and between its two
    limits nobody does. One answer that has all the other's numbers and more may only be longer: that stays
    open, too.
    """
    left, right = normalised(fresh), normalised(cached)
    if not left or not right:
        return None
    if CODE in fresh or CODE in cached:
        return True if fresh.split() == cached.split() else None
    if left == right:
        return True
    numbers = _compare_numbers(fresh, cached)
    if {polarity(fresh), polarity(cached)} == {True, False} or numbers is _Numbers.CONFLICT:
        return False
    agree = numbers is _Numbers.EQUAL and _is_negated(left) == _is_negated(right)
    return _by_cosine(cosine, same_from if agree else math.inf, different_below)


def _by_cosine(cosine: float | None, same_from: float, different_below: float) -> bool | None:
    if cosine is None or math.isnan(cosine) or different_below <= cosine < same_from:
        return None
    return cosine >= same_from


def normalised(text: str) -> str:
    """The words, numbers and telling symbols of a text, in lower case, one space between them."""
    return " ".join(TOKEN.findall(_plain(text).casefold()))


def numbers_of(text: str) -> frozenset[str]:
    """The numbers in a text, without separators of thousands, zeros that end a fraction, and list marks."""
    return frozenset(_shortest(found) for found in NUMBER.findall(_plain(text)))


def polarity(text: str) -> bool | None:
    """``True`` if the first word is a yes, ``False`` if it is a no, else ``None``."""
    word = next(iter(normalised(text).split(" ", 1)))
    return word in YES if word in YES or word in NO else None


def _plain(text: str) -> str:
    """Without markdown at the beginnings of lines, with one kind of minus and no separators of thousands."""
    return THOUSANDS.sub("", MARKS.sub("", unicodedata.normalize("NFKC", text).replace("−", "-")))


def _shortest(number: str) -> str:
    is_fraction = number.count(".") == 1 and ":" not in number and "/" not in number
    return number.rstrip("0").rstrip(".") if is_fraction else number


def _compare_numbers(fresh: str, cached: str) -> _Numbers:
    left, right = numbers_of(fresh), numbers_of(cached)
    if left == right:
        return _Numbers.EQUAL
    return _Numbers.PARTLY if left < right or right < left else _Numbers.CONFLICT


def _is_negated(words: str) -> bool:
    """Whether the number of negations is odd."""
    return sum(word in NEGATIONS or word.endswith(("n't", "n’t")) for word in words.split(" ")) % 2 == 1
