"""The guards' word lists: read once when the guards are built, then constant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

PACKAGE = "serve_app.cache.guards"


@dataclass(frozen=True, slots=True)
class Members:
    """Which entity each word or pair of words ("new zealand") names; a word may name several.

    ``firsts`` are the first words of the pairs, ``singles`` the words that stand alone.
    """

    of: Mapping[str, frozenset[str]]
    firsts: frozenset[str]
    singles: frozenset[str]


@dataclass(frozen=True, slots=True)
class WordLists:
    """``opposites`` maps a word to its opposites, inflected forms included; ``alternatives`` maps it to
    ``group:member`` keys, ``names`` to entities, and ``modifiers`` to its class. ``base`` maps an irregular
    form to its base. ``near`` maps a word to the numbers of its sets: sets of synonyms, and of words that can
    replace each other in an otherwise equal text. ``light`` are the words, of any language, that a rewording
    adds or drops; ``known`` are words that are not typing errors.

    ``tenses``, ``languages``, ``grammar`` and ``one_sided`` are sets of words by class."""

    function_words: frozenset[str]
    negators: frozenset[str]
    symmetric: frozenset[str]
    opposites: Mapping[str, frozenset[str]]
    alternatives: Members
    names: Members
    base: Mapping[str, str]
    near: Mapping[str, frozenset[int]]
    light: frozenset[str]
    known: frozenset[str]
    modifiers: Mapping[str, str]
    tenses: Mapping[str, frozenset[str]]
    languages: Mapping[str, frozenset[str]]
    grammar: Mapping[str, frozenset[str]]
    one_sided: Mapping[str, frozenset[str]]


def load_word_lists() -> WordLists:
    """Read ``data/*.txt`` of this package; raises ``OSError`` when a file is missing."""
    function_words, languages = _words("function_words"), _classes("languages")
    foreign = frozenset().union(*(words for name, words in languages.items() if name != "en"))
    return WordLists(
        function_words=function_words,
        negators=_words("negators"),
        symmetric=_words("symmetric"),
        opposites=_opposites(_lines("opposites")),
        alternatives=_alternatives(_lines("alternatives")),
        names=_members((forms[0], forms) for forms in map(str.split, _lines("names"))),
        base={form: forms[0] for forms in map(str.split, _lines("irregular")) for form in forms[1:]},
        near=_synonyms([*_lines("synonyms"), *_lines("near_words")]),
        light=(function_words | _words("asking_words") | foreign) - _words("foreign_telling"),
        known=known_words(),
        modifiers={word: name for name, words in _classes("modifiers").items() for word in words},
        tenses=_classes("tenses"),
        languages=languages,
        grammar=_classes("grammar"),
        one_sided=_classes("one_sided"),
    )


def known_words() -> frozenset[str]:
    """The words that are not typing errors of other words."""
    return _words("known_words")


def _lines(name: str) -> list[str]:
    text = (files(PACKAGE) / "data" / f"{name}.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _words(name: str) -> frozenset[str]:
    return frozenset(word for line in _lines(name) for word in line.split())


def _classes(name: str) -> dict[str, frozenset[str]]:
    return {head: frozenset(rest.split()) for head, _, rest in (line.partition(":") for line in _lines(name))}


def _opposites(lines: Iterable[str]) -> dict[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        left, right = line.split()
        for one in inflections(left):
            for other in inflections(right):
                found[one].add(other)
                found[other].add(one)
    return {word: frozenset(others) for word, others in found.items()}


def _synonyms(lines: Iterable[str]) -> dict[str, frozenset[int]]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for number, line in enumerate(lines):
        for word in line.split():
            for form in inflections(word):
                found[form].add(number)
    return {word: frozenset(numbers) for word, numbers in found.items()}


def _alternatives(lines: Iterable[str]) -> Members:
    entries = []
    for line in lines:
        group, _, rest = line.partition(":")
        for member in rest.split():
            forms = member.split("=")
            entries.append((f"{group}:{forms[0]}", [*forms, *(plural(form) for form in forms)]))
    return _members(entries)


def _members(entries: Iterable[tuple[str, list[str]]]) -> Members:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for entity, forms in entries:
        for form in forms:
            found[form.replace("_", " ").replace(".", " ")].add(entity)
    pairs = [form for form in found if " " in form]
    return Members(
        of={form: frozenset(entities) for form, entities in found.items()},
        firsts=frozenset(form.split(" ")[0] for form in pairs),
        singles=frozenset(form for form in found if " " not in form),
    )


def plural(word: str) -> str:
    """The regular plural."""
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in {"a", "e", "o", "u"}:
        return f"{word[:-1]}ies"
    return f"{word}s"


def inflections(word: str) -> frozenset[str]:
    """The word with its regular endings; forms that do not exist are harmless, because no text has them."""
    if len(word) < 3 or "-" in word:
        return frozenset({word.replace("-", "")})
    stem = word[:-1] if word.endswith("e") else word
    past = f"{word[:-1]}ied" if plural(word).endswith("ies") else f"{stem}ed"
    forms = {word, plural(word), past, f"{stem}ing"}
    if word[-1] in "bdgklmnprt" and word[-2] in "aeiou" and (len(word) == 3 or word[-3] not in "aeiou"):
        forms |= {f"{word}{word[-1]}ed", f"{word}{word[-1]}ing"}
    return frozenset(forms)
