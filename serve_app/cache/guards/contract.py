"""The contract of a guard, and its input: a text, analysed once and compared often."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from serve_app.cache.guards.quantities import Quantity, quantities_in

MAX_CHARACTERS = 4_000
"""The rest of a longer text is ignored, so that the work is bounded."""

_TOKEN = re.compile(r"(\d+(?:[.,:/]\d+)*[^\W_]*|[^\W_]+(?:'[^\W_]+)*)")
_SENTENCE_END = re.compile(r"[.?!:;\n]|[\"(\[*“]$")
_NEGATED = frozenset(
    {"cannot", "cant", "dont", "doesnt", "didnt", "isnt", "arent", "wasnt", "wouldnt", "shouldnt"}
)


@dataclass(frozen=True, slots=True)
class Text:
    """A text as the guards see it, cut at ``MAX_CHARACTERS``.

    ``words`` are lower case, without possessive and contracted endings ("what's" is "what", "don't" is
    "not"); ``written`` are the same words as they were written, and ``gaps`` the text around them
    (``gaps[i]`` before word ``i``, ``gaps[-1]`` after the last). ``capitalised`` are the indices of words
    written like a name, not at a sentence's start; empty if capitals mark no names (a headline).
    """

    raw: str
    lower: str
    words: tuple[str, ...]
    written: tuple[str, ...]
    gaps: tuple[str, ...]
    vocabulary: frozenset[str]
    capitalised: tuple[int, ...]
    quantities: frozenset[Quantity]

    def starts_sentence(self, index: int) -> bool:
        """Whether the word at ``index`` is the first of a sentence, a quotation or a bracket."""
        return index == 0 or _SENTENCE_END.search(self.gaps[index].rstrip(" ")) is not None

    def overlap(self, other: Text) -> float:
        """The share of all words that both texts have, 0 to 1."""
        shared = len(self.vocabulary & other.vocabulary)
        return shared / (len(self.vocabulary) + len(other.vocabulary) - shared or 1)


Guard = Callable[[Text, Text], bool]
"""Returns ``True`` if it objects to reusing the answer to one text for the other."""


def analyse(text: str) -> Text:
    """Split ``text`` into words, names and quantities. Accepts any string; raises nothing."""
    raw = text[:MAX_CHARACTERS].replace("’", "'")
    pieces = _TOKEN.split(raw)
    written = tuple(pieces[1::2])
    gaps = tuple(pieces[0::2])
    words = tuple(
        [plain(word) for word in written] if "'" in raw else [_spelled(word.lower()) for word in written]
    )
    vocabulary = frozenset(words)
    return Text(
        raw=raw,
        lower=raw.lower(),
        words=words,
        written=written,
        gaps=gaps,
        vocabulary=vocabulary,
        capitalised=_capitalised(written, gaps),
        quantities=quantities_in(words, gaps, vocabulary),
    )


def plain(word: str) -> str:
    """The word in lower case without its contracted or possessive ending."""
    lower = word.lower()
    head, apostrophe, tail = lower.partition("'")
    if not apostrophe:
        return _spelled(lower)
    if tail == "t" and head.endswith("n"):
        return "not"
    if tail == "ll":
        return "will"
    return head


def _spelled(lower: str) -> str:
    return "not" if lower in _NEGATED else lower


def _capitalised(written: tuple[str, ...], gaps: tuple[str, ...]) -> tuple[int, ...]:
    upper = [index for index, word in enumerate(written) if word[0].isupper()]
    if not upper or upper == [0] or _is_headline(written, len(upper)):
        return ()
    return tuple(
        [
            index
            for index in upper
            if index
            and _SENTENCE_END.search(gaps[index].rstrip(" ")) is None
            and written[index].partition("'")[0] != "I"
        ]
    )


def _is_headline(written: tuple[str, ...], upper: int) -> bool:
    """Whether most of the words begin with a capital letter, which then marks no names."""
    if upper < 4 or upper * 10 < len(written) * 4:
        return False
    long = [word for word in written if len(word) > 3]
    return sum(word[0].isupper() for word in long) * 10 > len(long) * 8 and upper * 10 > len(written) * 6
