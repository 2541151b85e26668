"""A near entry answers only when no step objects; the first objection is the reason."""

from __future__ import annotations

import math

import pytest

from serve_app.cache.decision import STEPS, Evidence, refusal


def evidence(text: str = "hi", similarity: float = 0.95, threshold: float = 0.9) -> Evidence:
    return Evidence(text, "hello", similarity, threshold)


def objects(seen: Evidence) -> str | None:
    return "always"


def agrees(seen: Evidence) -> str | None:
    return None


@pytest.mark.parametrize(
    ("similarity", "threshold", "reason"),
    [
        (0.95, 0.9, None),
        (0.9, 0.9, None),
        (math.nextafter(0.9, 0), 0.9, "similarity"),
        (0.5, 0.9, "similarity"),
        (-1.0, 0.0, "similarity"),
        (0.0, 0.0, None),
        (1.0, 1.0, None),
        (0.9999, 1.0, "similarity"),
        (math.nan, 0.0, "similarity"),
    ],
)
def test_a_candidate_must_reach_the_threshold(
    similarity: float, threshold: float, reason: str | None
) -> None:
    assert refusal(evidence(similarity=similarity, threshold=threshold)) == reason


@pytest.mark.parametrize("text", ["", " ", "?!", "...", "👍", "\n---\n", "¿?"])
def test_a_text_without_words_is_like_no_other(text: str) -> None:
    assert refusal(evidence(text, similarity=1.0)) == "no_words"


@pytest.mark.parametrize("text", ["a", "7", "東", "é", "?x?", "½"])
def test_one_letter_or_digit_of_any_script_makes_a_text(text: str) -> None:
    assert refusal(evidence(text)) is None


def test_the_first_objection_is_the_reason() -> None:
    assert refusal(evidence("?!", similarity=0.1)) == "similarity"
    assert refusal(evidence("?!", similarity=0.1), (*reversed(STEPS),)) == "no_words"


def test_steps_can_be_added_without_a_change_to_the_decision() -> None:
    assert refusal(evidence(), (*STEPS, objects)) == "always"
    assert refusal(evidence(), (agrees, agrees)) is None
    assert refusal(evidence(), ()) is None
