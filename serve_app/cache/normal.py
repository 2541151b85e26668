"""The normal form of a text, which is embedded and which the guards compare: abbreviations are written out,
and typing errors corrected.

Both are looked up in tables of this package, so a word that is in no table stays as it is. Letters other than
ASCII, codes, paths and quoted words stay too. The text itself, by which exact hits are found, never changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from serve_app.cache.guards.lists import known_words
from serve_app.embedding import EmbedderInfo

VERSION = 1
"""Raise it when the normal form of texts changes: vectors of two versions are not compared."""

PACKAGE = "serve_app.cache"
_MAX_CHARACTERS = 4_000
_WORD = re.compile(r"(?<![\w./\\@#`'\"-])[a-z]{3,20}(?![\w./\\@`'\"(-]\w)(?!['\"`(/\\@])")
_SHORTEST_EXCHANGE = 5


def vectors_of(embedder: EmbedderInfo) -> str:
    """A name for the embedder and the normal form of its texts. Vectors with another name are kept in another
    folder or collection."""
    return f"{embedder.name}:normal-{VERSION}"


@dataclass(frozen=True, slots=True)
class Normaliser:
    """``long_forms`` maps an abbreviation in lower case to its long form; ``capital`` are the abbreviations
    that count only in capitals, because in lower case they look like a word of English or of another
    language. ``right`` maps a misspelling to the word."""

    long_forms: Mapping[str, str]
    capital: frozenset[str]
    right: Mapping[str, str]
    known: frozenset[str]
    pattern: re.Pattern[str]

    def __call__(self, text: str) -> str:
        """The normal form of a text; a long text (over 4,000 characters) is returned unchanged."""
        if len(text) > _MAX_CHARACTERS:
            return text
        righted = _WORD.sub(self._word, text) if text.isascii() else text
        return self.pattern.sub(self._long_form, righted)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        if word in self.known:
            return word
        return self.right.get(word) or self._exchanged(word)

    def _exchanged(self, word: str) -> str:
        """The word with two neighbouring letters exchanged, if that gives one known word ("calcualte")."""
        if len(word) < _SHORTEST_EXCHANGE:
            return word
        fits = {
            other
            for index in range(len(word) - 1)
            if (other := f"{word[:index]}{word[index + 1]}{word[index]}{word[index + 2 :]}") in self.known
        }
        return fits.pop() if len(fits) == 1 else word

    def _long_form(self, found: re.Match[str]) -> str:
        short = found[1].lower()
        if short in self.capital and found[1] != found[1].upper():
            return found[0]
        return self.long_forms[short] + found[2]


def load_normaliser() -> Normaliser:
    """Read the tables of this package; raises ``OSError`` when a file is missing."""
    entries = [line.split(": ", 1) for line in _lines("abbreviations")]
    shorts = sorted((re.escape(short) for short, _ in entries), key=len, reverse=True)
    known = known_words()
    return Normaliser(
        long_forms={short.lower(): long for short, long in entries},
        capital=frozenset(
            short.lower()
            for short, _ in entries
            if short.isupper() and (len(short) < 4 or short.lower() in known)
        ),
        right=dict(line.split(" ", 1) for line in _lines("misspellings")),
        known=known,
        pattern=re.compile(rf"(?<![\w./\-])({'|'.join(shorts)})(s?)(?![\w/\-]|\.\w)", re.IGNORECASE),
    )


def _lines(name: str) -> list[str]:
    text = (files(PACKAGE) / "data" / f"{name}.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
