"""Whether two answers say the same: yes, no, or cannot tell."""

from __future__ import annotations

import math

import pytest

from serve_app.cache.bound import same_answer
from serve_app.cache.bound.compare import numbers_of, polarity


@pytest.mark.parametrize(
    ("fresh", "cached"),
    [
        ("Paris.", "paris"),
        ("**Paris** is the capital.", "Paris is the capital"),
        ("# Steps\n\n1. Open it\n2. Close it", "Steps\n- open it\n- close it"),
        ("It costs 1,200 €.", "it costs 1200 €"),
        ("A well-known fact", "a well known fact"),
        ("−3 degrees", "-3 degrees"),
        ("ﬁne", "fine"),
        ("```\nx = 1\n```", "```\n  x = 1\n```"),
        ("東京です。", "東京です"),
    ],
)
def test_equal_but_for_form_is_the_same_without_a_vector(fresh: str, cached: str) -> None:
    assert same_answer(fresh, cached, None) is True


@pytest.mark.parametrize(
    ("fresh", "cached"),
    [
        ("Yes, it is.", "No, it is not."),
        ("**True.** Water is wet.", "False. Water is dry."),
        ("It takes 5 days.", "It takes 7 days."),
        ("-5 degrees", "5 degrees"),
        ("It opened in 1889.", "It opened in 1887, after a delay."),
        ("Version 3.1", "Version 3.2"),
    ],
)
def test_another_polarity_or_number_is_another_answer_however_near(fresh: str, cached: str) -> None:
    assert same_answer(fresh, cached, 0.999) is False


@pytest.mark.parametrize(
    ("cosine", "same"),
    [(0.99, True), (0.9, True), (0.8, None), (0.1, False), (None, None), (math.nan, None)],
)
def test_else_the_cosine_decides_and_in_between_nobody(cosine: float | None, same: bool | None) -> None:
    first, second = "The capital is Paris.", "Paris is the capital city."
    assert same_answer(first, second, cosine, same_from=0.9, different_below=0.6) is same


@pytest.mark.parametrize(
    ("fresh", "cached"),
    [
        ("Paris.", "Paris, with 2.1 million people."),
        ("You may do that.", "You may not do that."),
        ("It's allowed there.", "It isn't allowed there."),
        ("", "Paris."),
        ("Paris.", "..."),
        ("```\na[0]\n```", "```\na[1]\n```"),
    ],
)
def test_a_high_cosine_does_not_decide_over_more_numbers_negation_code_or_nothing(
    fresh: str, cached: str
) -> None:
    assert same_answer(fresh, cached, 0.99) is None


def test_it_does_not_matter_which_is_fresh() -> None:
    texts = ["Yes.", "No.", "It is 5.", "It is 5.0", "It is 5 of 6", "Not so", "", "```x```"]
    for one in texts:
        for two in texts:
            assert same_answer(one, two, 0.95) is same_answer(two, one, 0.95)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1. first\n2. second", set()),
        ("from 10-20 km, 5km", {"10", "20", "5"}),
        ("3.0 and 2.50", {"3", "2.5"}),
        ("at 12:30, 1/2 of it", {"12:30", "1/2"}),
        ("GPT4 and v2", set()),
        ("1,000,000", {"1000000"}),
        ("10 and 100", {"10", "100"}),
    ],
)
def test_numbers_are_read_without_their_form(text: str, numbers: set[str]) -> None:
    assert numbers_of(text) == numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Yes!", True), ("*No*", False), ("None of them", None), ("", None), ("Maybe", None)],
)
def test_the_first_word_gives_the_polarity(text: str, expected: bool | None) -> None:
    assert polarity(text) is expected
