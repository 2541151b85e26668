"""The word lists that ship with the guards."""

from __future__ import annotations

from importlib.resources import files

import pytest

from serve_app.cache.guards.lists import PACKAGE, inflections, load_word_lists, plural

FILES = sorted(path.name for path in (files(PACKAGE) / "data").iterdir() if path.name.endswith(".txt"))


def lines(name: str) -> list[str]:
    text = (files(PACKAGE) / "data" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", FILES)
def test_a_list_says_where_it_comes_from_and_is_lower_case(name: str) -> None:
    text = (files(PACKAGE) / "data" / name).read_text(encoding="utf-8")
    assert text.startswith(("# Written for this project.", "# From the vocabulary of bert-base-uncased"))
    assert all(line == line.lower().strip() for line in lines(name))


@pytest.mark.parametrize("name", FILES)
def test_no_line_of_a_list_is_there_twice(name: str) -> None:
    found = lines(name)
    assert len(found) == len(set(found))


def test_opposites_are_pairs_and_lead_both_ways() -> None:
    assert len(lines("opposites.txt")) >= 250
    opposites = load_word_lists().opposites
    assert all(word in opposites[other] for word, others in opposites.items() for other in others)
    assert "sold" not in opposites
    assert "sells" in opposites["buys"]


def test_no_word_is_its_own_opposite() -> None:
    assert not [word for word, others in load_word_lists().opposites.items() if word in others]


def test_every_one_sided_class_is_a_class_of_modifiers() -> None:
    lists = load_word_lists()
    classes = set(lists.modifiers.values())
    assert all(names <= classes for names in lists.one_sided.values())


def test_two_words_may_name_one_entity() -> None:
    names = load_word_lists().names
    assert names.of["new zealand"] == {"new_zealand"}
    assert "new" in names.firsts


@pytest.mark.parametrize(
    ("word", "form"),
    [("city", "cities"), ("box", "boxes"), ("day", "days"), ("cat", "cats"), ("dish", "dishes")],
)
def test_regular_plurals(word: str, form: str) -> None:
    assert plural(word) == form


@pytest.mark.parametrize(("word", "form"), [("stop", "stopped"), ("rise", "rising"), ("carry", "carried")])
def test_regular_verb_forms(word: str, form: str) -> None:
    assert form in inflections(word)
