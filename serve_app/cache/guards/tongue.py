"""The language of a short text, cheaply: by its script, its function words, and how many words are known."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.cache.guards.contract import Text
from serve_app.cache.guards.language import script
from serve_app.cache.guards.lists import WordLists

ENGLISH = "en"
UNKNOWN = ""
"""The text is clearly not English, but its language is not known."""

_BY_SCRIPT: Mapping[str, str] = {
    "han": "zh",
    "kana": "ja",
    "hangul": "ko",
    "cyrillic": "ru",
    "greek": "el",
    "hebrew": "he",
    "arabic": "ar",
    "devanagari": "hi",
    "thai": "th",
    "georgian": "ka",
    "armenian": "hy",
}
"""The most common language of each script; other languages with that script count as that one."""

_LEAST_KNOWN = 0.5
_SHORTEST = 4
_FEW = 3


def language_of(text: Text, lists: WordLists) -> str:
    """An ISO 639-1 code, or ``UNKNOWN``. A text that shows no language (a code, a name) counts as English:
    the word lists are made for English, and such texts are compared sign by sign."""
    if not text.raw.isascii() and (kind := script(text.raw)) not in ("latin", ""):
        return _BY_SCRIPT.get(kind, UNKNOWN)
    counts = {name: len(text.vocabulary & words) for name, words in lists.languages.items()}
    english = max(counts[ENGLISH], len(text.vocabulary & lists.function_words))
    likeliest = max(counts, key=lambda name: counts[name])
    if likeliest != ENGLISH and counts[likeliest] > english:
        return likeliest
    return UNKNOWN if _is_foreign(text, english, lists) else ENGLISH


def _is_foreign(text: Text, english: int, lists: WordLists) -> bool:
    """Whether few of the longer words are English, and there is hardly any English function word."""
    words = [word for word in text.vocabulary if len(word) >= _SHORTEST and word.isalpha()]
    unknown = sum(word not in lists.known for word in words)
    accented = any(not word.isascii() for word in words)
    if len(words) < _FEW and not accented:
        return False
    return unknown > len(words) * _LEAST_KNOWN and english <= (1 if accented else 0)
