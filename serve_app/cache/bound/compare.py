"""Compares a fresh answer with a cached one."""

from __future__ import annotations

import math
import re
import unicodedata
from enum import Enum

SAME_COSINE = 0.92
DIFFERENT_COSINE = 0.60
"""Measured with all-MiniLM-L6-v2 on 514 pairs of statements (two thirds different, most of those made to look
alike). 0.60 called 2 % of the equal pairs different. 0.92 called 55 % of the equal pairs and 11 % of the
different ones equal; 0.95: 33 % and 7 %; 0.85: 84 % and 15 %. The errors are other names in the same
sentence, which a cosine does not show.
"""

MARKS = re.compile(r"^[ \t]*(?:[-*+>#]+|\d{1,2}[.)])[ \t]+", re.MULTILINE)
"""Markdown at the beginning of a line: bullets, quotes, headings, and the numbers of a list."""

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.:/]\d+)*")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
TOKEN = re.compile(r"(?<!\w)-?\d+(?:[.:/]\d+)*|[^\W_]+(?:['’][^\W_]+)*|[%$€£+/=<^°]")
"""A number with its sign, a word, or a symbol that changes the meaning of its neighbour."""

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
    """Whether both answers say the same; ``None`` if that is not clear.

    ``cosine`` is that of the two answers' embeddings, or ``None`` if there are none. In this order: answers
    that differ only in case, space, punctuation and markdown are the same (answers with code: only in space);
    answers of different polarity ("yes", "no") or with different numbers are not; else the cosine decides,
    and between its two limits the result is ``None``. If one answer has all the other's numbers and more, it
    may just be longer: then only the lower limit decides.
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
    """The words, numbers and significant symbols of a text, in lower case, separated by one space."""
    return " ".join(TOKEN.findall(_plain(text).casefold()))


def numbers_of(text: str) -> frozenset[str]:
    """The numbers in a text, without thousands separators, trailing zeros of fractions, and list marks."""
    return frozenset(_shortest(found) for found in NUMBER.findall(_plain(text)))


def polarity(text: str) -> bool | None:
    """``True`` if the first word is a yes, ``False`` if it is a no, else ``None``."""
    word = next(iter(normalised(text).split(" ", 1)))
    return word in YES if word in YES or word in NO else None


def _plain(text: str) -> str:
    """The text without markdown at the beginnings of lines, with one kind of minus and no thousands
    separators."""
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
