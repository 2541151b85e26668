"""Guard against another kind of question: who for when, where for why, how many for how long."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists

_PLAIN = {"who": "who", "whom": "who", "whose": "who", "when": "when", "where": "where", "why": "why"}
_HOW = {
    "many": "many",
    "much": "much",
    "long": "long",
    "often": "often",
    "frequently": "often",
    "old": "old",
    "far": "far",
    "tall": "tall",
    "high": "tall",
    "big": "big",
    "large": "big",
    "fast": "fast",
    "quickly": "long",
    "come": "why",
}
_WHAT = {
    "time": "when",
    "year": "when",
    "date": "when",
    "day": "when",
    "country": "where",
    "city": "where",
    "place": "where",
    "person": "who",
    "age": "old",
}
_COMPATIBLE = (
    {"many", "much"},
    {"long", "when"},
    {"long", "many"},
    {"often", "many"},
    {"often", "when"},
    {"much", "big"},
    {"long", "far"},
    {"fast", "long"},
    {"where", "who"},
)
_STRICT = frozenset({"who", "when", "where", "why", "how"})
_ASKING = frozenset({*_PLAIN, "how", "what", "which"})


ALIGNED = 0.3
"""Two texts with a smaller share of words in common may ask the same in other ways ("why", "what makes")."""


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether the texts ask no kind of question in common, or differ in nothing but the first word."""
        if a.words == b.words or a.overlap(b) < ALIGNED:
            return False
        if a.words[1:] == b.words[1:] and {a.words[0], b.words[0]} <= _STRICT:
            return True
        ours, theirs = set(questions(a, lists)), set(questions(b, lists))
        return bool(ours) and bool(theirs) and not any(_fit(one, other) for one in ours for other in theirs)

    return objects


def questions(text: Text, lists: WordLists) -> Iterator[str]:
    """The kinds of question that ``text`` asks at the start of its sentences and after "tell me", "and", …;
    "how" and "what" (also which, and questions that want a yes or no) fit more than one kind of answer."""
    words = text.words
    if not lists.grammar["reasons"].isdisjoint(text.vocabulary):
        yield "why"
    if words and words[0] in lists.grammar["auxiliaries"]:
        yield "what"
    if _ASKING.isdisjoint(text.vocabulary):
        return
    for index, word in enumerate(words):
        if word not in _ASKING:
            continue
        if (
            index
            and not text.starts_sentence(index)
            and words[index - 1] not in lists.grammar["led_by"]
            and "," not in text.gaps[index]
        ):
            continue
        after = words[index + 1] if index + 1 < len(words) else ""
        if word == "how":
            yield _HOW.get(after, "how")
        else:
            yield _PLAIN.get(word) or _WHAT.get(after, "what")


def _fit(one: str, other: str) -> bool:
    if one == other or "how" in (one, other):
        return True
    if "what" in (one, other):
        return "why" not in (one, other)
    return {one, other} in _COMPATIBLE
