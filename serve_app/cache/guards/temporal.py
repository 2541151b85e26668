"""Guard against another time (past, present or future), or two clauses in the other order."""

from __future__ import annotations

from serve_app.cache.guards.compare import stem
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists

_LEADING = {
    "is": "present",
    "are": "present",
    "do": "present",
    "does": "present",
    "was": "past",
    "were": "past",
    "did": "past",
}
_LEAD_WORDS = 4
_ORDERS = ("before", "after", "until", "since")
_USED = frozenset({"used", "use"})
_BEING = frozenset({"be", "have"})
ALIGNED = 0.4
"""Texts with a smaller share of words in common may describe one thing in different tenses."""


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        if a.words == b.words:
            return False
        tense = a.overlap(b) >= ALIGNED and _tense_differs(a, b, lists)
        return tense or _habit_differs(a, b, lists) or _clauses_exchanged(a, b, lists)

    return objects


def _habit_differs(a: Text, b: Text, lists: WordLists) -> bool:
    ours, theirs = has_past_habit(a, lists), has_past_habit(b, lists)
    if ours == theirs:
        return False
    return lists.grammar["former"].isdisjoint((b if ours else a).vocabulary)


def has_past_habit(text: Text, lists: WordLists) -> bool:
    """Whether the text tells of a past habit: "she used to be", "did she use to be"; not "is used to", "what
    is it used to do"."""
    words, did = text.words, "did" in text.vocabulary
    if text.vocabulary.isdisjoint(_USED):
        return False
    for index in range(1, len(words) - 2):
        if words[index + 1] == "to":
            if words[index] == "used" and _is_subject(text, index - 1, lists):
                return True
            if words[index] == "use" and did and words[index + 2] in _BEING:
                return True
    return False


def _is_subject(text: Text, index: int, lists: WordLists) -> bool:
    word = text.words[index]
    if word in lists.grammar["be"]:
        return False
    return word in lists.grammar["subjects"] or text.written[index][0].isupper()


def _tense_differs(a: Text, b: Text, lists: WordLists) -> bool:
    """Whether one text speaks of the future and the other of the past, or their first verbs have different
    tenses ("is", "was")."""
    past, future = lists.tenses["past"], lists.tenses["future"]
    ours = (not past.isdisjoint(a.vocabulary), not future.isdisjoint(a.vocabulary))
    theirs = (not past.isdisjoint(b.vocabulary), not future.isdisjoint(b.vocabulary))
    if (ours, theirs) in (((True, False), (False, True)), ((False, True), (True, False))):
        return True
    one, other = _leading(a), _leading(b)
    return "" not in (one, other) and one != other


def _leading(text: Text) -> str:
    return next((_LEADING[word] for word in text.words[:_LEAD_WORDS] if word in _LEADING), "")


def _clauses_exchanged(a: Text, b: Text, lists: WordLists) -> bool:
    """Whether the texts are like "X before Y" and "Y before X"."""
    for order in _ORDERS:
        if order in a.vocabulary and order in b.vocabulary:
            left, right = _around(a, order, lists)
            left_b, right_b = _around(b, order, lists)
            if left and right and left != left_b and left <= right_b and right <= left_b:
                return True
    return False


def _around(text: Text, word: str, lists: WordLists) -> tuple[set[str], set[str]]:
    index = text.words.index(word)
    return (
        {stem(one, lists.base) for one in text.words[:index] if one not in lists.function_words},
        {stem(one, lists.base) for one in text.words[index + 1 :] if one not in lists.function_words},
    )
