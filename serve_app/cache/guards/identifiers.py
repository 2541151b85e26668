"""Guard against another piece of code, path, version or address, or another word that is itself asked
about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serve_app.cache.guards.compare import MOST_PAIRS, is_respelling, is_transposed
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists

_QUOTES = ("`", '"', "“", " '")
_QUOTED = re.compile(r"`([^`]{1,200})`|[\"“]([^\"”“]{1,40})[\"”]|(?<!\S)''?([^'\n]{1,40})'(?!\w)")
_ODD = re.compile(r"[_/\\@#+]|\d[A-Za-z]|[A-Za-z]-?\d|[a-z][A-Z]|\w\.\w|^--?[A-Za-z]")
_EDGES = ".,;:!?()[]{}<>\"'`“”*"
_IDENTIFIERS = (
    re.compile(r"https?://\S{1,300}|www\.\S{1,300}"),
    re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,32}){0,6}"),
    re.compile(r"[@#][\w-]{2,64}"),
    re.compile(r"--?[A-Za-z][\w=-]{0,64}"),
    re.compile(
        r"[\w.-]{1,64}(?:/[\w.-]{1,64}){2,16}/?|[~.]{0,2}(?:/[\w.-]{1,64}){1,16}/?|[A-Za-z]:\\\S{1,200}"
    ),
    re.compile(r"[A-Za-z](?:\+\+|#)"),
    re.compile(r"[A-Za-z_]\w{0,64}(?:\.[A-Za-z_]\w{0,64}){1,8}(?:\(\))?|v?\d+(?:\.\d+){2,6}"),
    re.compile(r"\w{0,64}_\w{0,64}(?:\(\))?"),
    re.compile(r"[A-Za-z]{1,32}-?\d[\w.-]{0,32}|\d{1,12}[A-Za-z]\w{0,32}"),
    re.compile(r"[a-z]{2,32}[A-Z][A-Za-z]{1,64}(?:\(\))?"),
)
_QUANTITY = re.compile(
    r"\d+(?:st|nd|rd|th|s|am|pm|k|m|bn|kg|g|mg|km|cm|mm|lbs?|ft|hrs?|mins?|years?|yrs?|gb|mb|tb)?"
)
_MENTION = (
    re.compile(
        r"\b(?:spell(?:ing|ed)?|defin(?:e|ition|ing)|meaning|pronounce|pronunciation|synonyms?|antonyms?"
        r"|translate)(?: (?:out|of|for|the|a|an|word|term|phrase)){0,4} [\"'“`]?([^\W\d_]{2,40})"
    ),
    re.compile(
        r"\bwhat (?:does|do|did) (?:(?:the|a|an|word|term|phrase) ){0,3}[\"'“`]?([^\W\d_]{2,40})\W? mean"
    ),
    re.compile(r"\b(?:say|call) [\"'“`]?([^\W\d_]{2,40})\W? in\b"),
    re.compile(r"\bwhat ([^\W\d_]{2,40}) means\b"),
)
_HINTS = ("spell", "defin", "mean", "pronoun", "pronunc", "nonym", "translate", "say ", "call ")
_NEVER_MENTIONED = frozenset({"life", "name", "behind"})


def guard(lists: WordLists) -> Guard:
    ignored = lists.function_words | _NEVER_MENTIONED

    def objects(a: Text, b: Text) -> bool:
        if a.lower == b.lower:
            return False
        return _identifiers_differ(a, b) or _mentions_differ(a, b, ignored)

    return objects


def identifiers(text: Text) -> set[str]:
    """The text's identifiers in lower case, without quotes, spaces and hyphens."""
    return {
        plain for one in _found(text.raw) if len(plain := _plain(one)) > 1 and not _QUANTITY.fullmatch(plain)
    }


def _found(raw: str) -> Iterator[str]:
    if any(quote in raw for quote in _QUOTES) or raw.startswith("'"):
        for match in _QUOTED.finditer(raw):
            yield match[match.lastindex or 0]
    if _ODD.search(raw) is None and " -" not in raw:
        return
    for piece in raw.split():
        if not piece.isalpha() and _ODD.search(piece):
            bare = piece.strip(_EDGES)
            if any(pattern.fullmatch(bare) for pattern in _IDENTIFIERS):
                yield bare


def mentions(text: Text) -> set[str]:
    """Words that a text asks about: how X is spelled, what X means, how to say X."""
    if not any(hint in text.lower for hint in _HINTS):
        return set()
    return {match[1] for pattern in _MENTION for match in pattern.finditer(text.lower)}


def _plain(identifier: str) -> str:
    return "".join(identifier.lower().split()).replace("-", "").lstrip("#").strip(".,;:!?()'\"")


def _identifiers_differ(a: Text, b: Text) -> bool:
    """Whether each text has an identifier that the other has in no spelling."""
    ours = identifiers(a)
    theirs = identifiers(b) if ours else ours
    if not theirs or ours == theirs:
        return False
    in_a, in_b = _plain_text(a), _plain_text(b)
    left = [one for one in ours if one not in in_b]
    right = [one for one in theirs if one not in in_a]
    if len(left) * len(right) > MOST_PAIRS:
        return True
    return bool(left) and bool(right) and not any(_is_typo(one, other) for one in left for other in right)


def _is_typo(one: str, other: str) -> bool:
    """Whether two letters are exchanged; exchanged digits make another identifier."""
    return is_transposed(one, other) and not any(sign.isdecimal() for sign in one + other)


def _plain_text(text: Text) -> str:
    return "".join(text.lower.split()).replace("-", "")


def _mentions_differ(a: Text, b: Text, ignored: frozenset[str]) -> bool:
    ours = mentions(a) - ignored
    theirs = mentions(b) - ignored if ours else ours
    if not theirs or not ours.isdisjoint(theirs):
        return False
    return not any(is_respelling(one, other) for one in ours for other in theirs)
