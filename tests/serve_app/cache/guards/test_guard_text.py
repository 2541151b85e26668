"""How a text is cut into what the guards compare."""

from __future__ import annotations

import pytest

from serve_app.cache.guards.contract import MAX_CHARACTERS, analyse
from serve_app.cache.guards.quantities import Quantity


def test_words_are_lower_case_and_without_endings() -> None:
    assert analyse("What's India’s capital? I don't know").words == (
        "what", "india", "capital", "i", "not", "know",
    )  # fmt: skip


def test_gaps_stand_around_the_words() -> None:
    text = analyse("(one, two)!")
    assert text.gaps == ("(", ", ", ")!")
    assert len(text.gaps) == len(text.words) + 1


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ("Who is Ann Lee?", {"ann", "lee"}),
        ("Yes. Is she I?", set()),
        ("I know what I said to NASA", {"nasa"}),
        ("How To Grow Tomatoes In Small Pots", set()),
        ("who is ann lee", set()),
        ("", set()),
    ],
)
def test_capitals_away_from_a_sentence_start_mark_names(raw: str, names: set[str]) -> None:
    text = analyse(raw)
    assert {text.words[index] for index in text.capitalised} == names


def test_only_the_first_characters_of_a_long_text_are_looked_at() -> None:
    start = "same words " * MAX_CHARACTERS
    assert analyse(start[:MAX_CHARACTERS] + "one end") == analyse(start[:MAX_CHARACTERS] + "another end")


@pytest.mark.parametrize(
    ("raw", "quantity"),
    [
        ("2k", Quantity(2000.0, "", 2000.0)),
        ("1,000", Quantity(1000.0, "", 1000.0)),
        ("3 million", Quantity(3e6, "", 3e6)),
        ("$4.50", Quantity(4.5, "dollar", 4.5)),
        ("7 %", Quantity(7.0, "", 7.0)),
        ("7%", Quantity(7.0, "percent", 7.0)),
        ("3pm", Quantity(900.0, "clock", 900.0)),
        ("12 am", Quantity(0.0, "clock", 0.0)),
        ("12:30", Quantity(750.0, "clock", 750.0)),
        ("two hours", Quantity(7200.0, "time", 2.0)),
        ("3/4", Quantity(0.75, "", 0.75)),
        ("22nd", Quantity(22.0, "ordinal", 22.0)),
        ("forty-two", Quantity(42.0, "", 42.0)),
        ("three thousand and twelve", Quantity(3012.0, "", 3012.0)),
        ("twice", Quantity(2.0, "", 2.0, weak=True)),
    ],
)
def test_quantities_have_one_form(raw: str, quantity: Quantity) -> None:
    assert analyse(raw).quantities == {quantity}


def test_a_text_without_numbers_has_no_quantities() -> None:
    assert analyse("no figures here").quantities == frozenset()
