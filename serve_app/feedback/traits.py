"""What can be said of an answer without a judge: whether it refuses, its length, its language."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

import msgspec

HEAD_CHARS = 240
"""A refusal says so at its beginning."""

READ_CHARS = 2000
"""So much of a text decides its language."""

REFUSALS = re.compile(
    r"\b(?:i(?:'m| am)(?: very| so)? sorry,? but|i (?:can(?:not|'t)|am unable to|am not able to|won't) "
    r"(?:help|assist|provide|answer|do|comply|discuss|share|fulfill)|as an ai(?: language model)?\b"
    r"|(?:es )?tut mir leid,|ich kann (?:dabei|dir|ihnen|das|diese\w*) .{0,40}nicht|als (?:ein )?ki\b"
    r"|je (?:suis désolé|ne peux pas)|lo siento,|no puedo (?:ayudar|proporcionar|responder)"
    r"|mi dispiace,|non posso (?:aiutar|fornire)|desculpe,|não posso (?:ajudar|fornecer))",
    re.IGNORECASE,
)

SCRIPTS = {
    "CYRILLIC": "cyrillic",
    "GREEK": "greek",
    "ARABIC": "arabic",
    "HEBREW": "hebrew",
    "DEVANAGARI": "devanagari",
    "THAI": "thai",
    "HANGUL": "hangul",
    "HIRAGANA": "japanese",
    "KATAKANA": "japanese",
    "CJK": "han",
}
"""Scripts by the first word of a letter's Unicode name. Latin letters say less: their words are looked at."""

WORDS = {
    language: frozenset(words.split(" "))
    for language, words in (
        ("en", "the and of to is in that it for with are you this not have"),
        ("de", "der die das und ist nicht mit ein eine für auf sie ich von zu"),
        ("fr", "le la les et est des une dans pour que qui pas vous sur du"),
        ("es", "el los las y es una que en por con para no del como su"),
        ("it", "il gli e è una che di per con non sono della nel si questo"),
        ("pt", "o os as e é uma que em por com para não do da como"),
        ("nl", "de het een en is niet van dat met voor op zijn je ik te"),
    )
}
LEAST_WORDS = 3
LEAD = 2
"""So many more words of one language than of the next."""

CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


class Traits(msgspec.Struct, frozen=True):
    """``other_language``: both languages are known, and differ."""

    refuses: bool
    other_language: bool
    chars: int


def traits_of(question: str, answer: str) -> Traits:
    asked, said = language_of(question), language_of(answer)
    return Traits(
        refuses=REFUSALS.search(answer[:HEAD_CHARS].replace("\u2019", "'")) is not None,
        other_language=asked is not None and said is not None and asked != said,
        chars=len(answer),
    )


def language_of(text: str) -> str | None:
    """A script, or one of the languages of ``WORDS``; ``None``: too little is said to know. Code is no
    language."""
    text = CODE.sub(" ", text[:READ_CHARS])
    script = _script(text)
    if script != "latin":
        return script
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = Counter({language: sum(word in known for word in words) for language, known in WORDS.items()})
    (best, most), (_, second) = counts.most_common(2)
    return best if most >= LEAST_WORDS and most >= LEAD * second else None


def _script(text: str) -> str | None:
    """The script of most letters; ``None`` without letters."""
    counts: Counter[str] = Counter()
    for letter in text:
        if letter.isalpha():
            if letter < "\u0250":
                counts["latin"] += 1
            else:
                counts[SCRIPTS.get(unicodedata.name(letter, "").split(" ")[0], "other")] += 1
    if not counts:
        return None
    if counts["japanese"]:  # with Chinese characters between them
        counts["japanese"] += counts.pop("han", 0)
    return counts.most_common(1)[0][0]
