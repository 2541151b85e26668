"""Guard against the same words in other roles: "from X to Y", "X than Y", who did it to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.cache.guards.compare import stem
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.places import marker

_MOST_WORDS = 120
_BEFORE = 3
"""How many words before two exchanged blocks can make their order irrelevant ("difference between")."""
_BETWEEN = 2
"""The most content words between two blocks whose order is irrelevant: further words belong to one of the
blocks ("laws in X, and how do the courts there differ from Y's")."""
_SENTENCE_ENDS = frozenset(".?!;:")


def guard(lists: WordLists) -> Guard:
    idle = lists.function_words - lists.grammar["light"]

    def objects(a: Text, b: Text) -> bool:
        """Whether the content words are the same, but in another order that no known rewording explains."""
        if a.words == b.words or max(len(a.words), len(b.words)) > _MOST_WORDS:
            return False
        if not _same_vocabulary(a, b, lists):
            return False
        ours, theirs = _content(a, lists, idle), _content(b, lists, idle)
        if sorted(ours.stems) != sorted(theirs.stems):
            return False
        if "by" in a.vocabulary ^ b.vocabulary and (wrong := _wrong_passive(ours, theirs)) is not None:
            return wrong
        return ours.stems != theirs.stems and _exchanged(ours, theirs)

    return objects


@dataclass(frozen=True, slots=True)
class _Content:
    """The content words of a text: their indices and their stems, in order."""

    text: Text
    lists: WordLists
    indices: tuple[int, ...]
    stems: tuple[str, ...]

    def is_joined(self, position: int) -> bool:
        """Whether "and", a comma or the like stands between the content word at ``position`` and the one
        before."""
        first = self.indices[position - 1] + 1 if position else 0
        last = self.indices[position]
        if not self.lists.grammar["coordinators"].isdisjoint(self.text.words[first:last]):
            return True
        return any(not gap.isspace() for gap in self.text.gaps[first : last + 1] if gap)

    def is_symmetric(self, start: int, p: int, q: int) -> bool:
        """Whether a word before the blocks at ``start`` and ``q``, or between, makes their order
        irrelevant."""
        if q - p > _BETWEEN or not self.is_one_sentence(p, q):
            return False
        first = self.indices[start]
        before = self.text.words[max(0, first - _BEFORE) : first]
        between = self.text.words[self.indices[p - 1] + 1 : self.indices[q]]
        return not self.lists.symmetric.isdisjoint(before + between)

    def is_one_sentence(self, p: int, q: int) -> bool:
        """Whether no sentence ends after the content word before ``p`` and up to the one at ``q``."""
        gaps = self.text.gaps[self.indices[p - 1] + 1 : self.indices[q] + 1]
        return all(_SENTENCE_ENDS.isdisjoint(gap) for gap in gaps)

    def marker(self, position: int) -> str:
        return marker(self.text, self.indices[position], frozenset(), self.lists)

    def agent(self) -> str | None:
        """The stem of the agent (after "by") of a passive clause; ``None`` if there is none."""
        words, base = self.text.words, self.lists.base
        index = words.index("by") if "by" in self.text.vocabulary else 0
        if not index or self.lists.grammar["be"].isdisjoint(self.text.vocabulary):
            return None
        before = words[index - 1]
        if not before.endswith("ed") and base.get(before, before) == before:
            return None
        return next((one for at, one in zip(self.indices, self.stems, strict=True) if at > index), None)


def _same_vocabulary(a: Text, b: Text, lists: WordLists) -> bool:
    """A quick check that avoids the slow one for most pairs."""
    left = a.vocabulary - b.vocabulary - lists.function_words
    right = b.vocabulary - a.vocabulary - lists.function_words
    if len(left) != len(right):
        return False
    return {stem(word, lists.base) for word in left} == {stem(word, lists.base) for word in right}


def _content(text: Text, lists: WordLists, idle: frozenset[str]) -> _Content:
    # "US" is not "us".
    acronyms = {at for at in text.capitalised if len(text.words[at]) > 1 and text.written[at].isupper()}
    indices = [at for at, word in enumerate(text.words) if word not in idle or at in acronyms]
    return _Content(text, lists, tuple(indices), tuple([stem(text.words[at], lists.base) for at in indices]))


def _wrong_passive(a: _Content, b: _Content) -> bool | None:
    """Whether the agent of the passive text is not the subject of the active one ("X used Y", "X was used by
    Y"); ``None`` when this is not one passive and one active text."""
    passive, active = (a, b) if "by" in a.text.vocabulary else (b, a)
    agent = passive.agent()
    if agent is None:
        return None
    patient = next((one for one in passive.stems if one != agent), agent)
    return active.stems.index(patient) < active.stems.index(agent)


def _exchanged(a: _Content, b: _Content) -> bool:
    """Whether the two orders differ by two blocks P and Q that changed places around M."""
    start, end = _differing(a.stems, b.stems)
    blocks = _blocks(a.stems[start:end], b.stems[start:end])
    if blocks is None:
        return True
    p, q = start + blocks[0], start + blocks[1]
    p_b, q_b = start + end - q, start + end - p
    if _is_idle(a, start, p, q, end) or _is_idle(b, start, p_b, q_b, end):
        return False
    if p < q or _is_compared(a, p) or _is_compared(b, p_b):
        return True
    ours = (a.marker(start), a.marker(q))
    theirs = (b.marker(start), b.marker(q_b))
    return ours[0] != ours[1] and ours == theirs


def _is_compared(text: _Content, q: int) -> bool:
    """Whether "than" stands before the second of two blocks that touch."""
    return "than" in text.text.words[text.indices[q - 1] + 1 : text.indices[q]]


def _differing(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, int]:
    """The bounds of what is left without the common start and the common end of two rearranged sequences."""
    start, end = 0, len(ours)
    while ours[start] == theirs[start]:
        start += 1
    while ours[end - 1] == theirs[end - 1]:
        end -= 1
    return start, end


def _blocks(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, int] | None:
    """``(p, q)`` such that ``ours`` is P·M·Q with P = ours[:p], Q = ours[q:], and ``theirs`` is Q·M·P."""
    size = len(ours)
    for q in range(size - 1, 0, -1):
        length = size - q
        if theirs[:length] != ours[q:]:
            continue
        for p in range(1, q + 1):
            if theirs[size - p :] == ours[:p] and theirs[length : size - p] == ours[p:q]:
                return p, q
    return None


def _is_idle(text: _Content, start: int, p: int, q: int, end: int) -> bool:
    """Whether the order of the two blocks has no meaning."""
    return text.is_symmetric(start, p, q) or _is_coordination(text, start, p, q, end)


def _is_coordination(a: _Content, start: int, p: int, q: int, end: int) -> bool:
    """Whether P and Q are items of one list, or stand in two parallel parts joined by "and"."""
    if all(a.is_joined(position) for position in range(p, q + 1)):
        return True
    middle, size = a.stems[p:q], q - p
    if not a.is_one_sentence(p, q):
        return False
    if size and a.is_joined(q) and a.stems[end : end + size] == middle:
        return True
    return size > 0 and start >= size and a.is_joined(p) and a.stems[start - size : start] == middle
