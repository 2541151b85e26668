"""Guard against other signs that an embedder hardly sees: operators, flags, slices, the case of a unit."""

from __future__ import annotations

import re
from collections import Counter

from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists

_HINT = re.compile(r"[=<>&|^~*+\\\[{%]|//|::|\?[.?]|(?<!\S)[-.]|\d ?[kKmMgG][wWbB]\b|-\d|/(?!\w)|\w\+|['\"]")
_SIGN = re.compile(
    r"""
      (?<![\w-])--?[A-Za-z][\w-]*                       # flag
    | (?<![\w.])-\d[\d.]*                               # negative number
    | (?<![\w.])\+\d[\d.]*
    | \\[A-Za-z]                                        # escape
    | %[A-Za-z](?![A-Za-z])                             # format
    | (?<!\S)\.{1,2}(?=[/\w])                           # leading dots
    | \[[^\[\]\s]{0,30}\]                               # index or slice
    | ===|!==|==|!=|<=|>=|<<|>>|&&|\|\||->|=>|:=|\+\+|\*\*|\?\?|\?\.|<>|\+=|-=|::|(?<!:)//
    | (?<!\w)[~!^](?=\w)
    | (?<!\S)\+\w+ | \w+\+(?=\W|$)
    | (?:(?<=\s)|^)[=<>&|^~*/](?=\s|$)
    | (?<=\w)=(?=\w)
    | (?<=\w)/(?=\s|$)
    """,
    re.VERBOSE,
)
_UNIT = re.compile(r"(?:\d ?|\b)([kKmMgGtT]?(?:W|w|b|B)(?:ps|/s|h)?)\b")
_CASED = frozenset(
    {"mW", "MW", "Mb", "MB", "Gb", "GB", "Kb", "KB", "Mbps", "MBps", "Mb/s", "MB/s", "Tb", "TB"}
)
_ALIGNED = 0.5


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether two texts with nearly the same words have different signs: each has a sign that the other
        lacks, or one has an additional sign that the other does not put in words."""
        if a.raw == b.raw or (_HINT.search(a.raw) is None and _HINT.search(b.raw) is None):
            return False
        if a.overlap(b) < _ALIGNED:
            return False
        return _units_differ(a.raw, b.raw) or _signs_differ(a, b, lists)

    return objects


def signs(raw: str) -> Counter[str]:
    """Operators, flags, slices, escapes and leading dots as they are written, and how often each occurs."""
    return Counter(_SIGN.findall(raw))


def _signs_differ(a: Text, b: Text, lists: WordLists) -> bool:
    ours, theirs = signs(a.raw), signs(b.raw)
    left = [sign for sign in (ours - theirs) if not _is_said(sign, b)]
    right = [sign for sign in (theirs - ours) if not _is_said(sign, a)]
    if left and right:
        return True
    content = (a.vocabulary ^ b.vocabulary) - lists.light
    return bool(left or right) and not content and len(a.words) == len(b.words)


def _is_said(sign: str, other: Text) -> bool:
    """Whether the other text has the word of a flag or an index."""
    core = sign.strip("-[]\\%./")
    return len(core) > 1 and core[0].isalpha() and core.lower() in other.lower


def _units_differ(one: str, other: str) -> bool:
    ours = {unit for unit in _UNIT.findall(one) if unit in _CASED}
    theirs = {unit for unit in _UNIT.findall(other) if unit in _CASED}
    return any(unit.lower() == mate.lower() for unit in ours - theirs for mate in theirs - ours)
