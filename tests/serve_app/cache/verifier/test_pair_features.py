"""What the features say of small texts whose words have known vectors."""

from __future__ import annotations

import numpy as np
import pytest

from serve_app.cache.verifier.features import NONE_LEFT, ONE_LEFT, pair_features
from serve_app.cache.verifier.words import Words

MEANINGS = {
    "cat": (1.0, 0.0, 0.0),
    "feline": (0.8, 0.6, 0.0),
    "car": (0.0, 0.0, 1.0),
    "sees": (0.0, 1.0, 0.0),
}
LITTLE = (0.577, 0.577, 0.577)


def words(text: str) -> Words:
    found = tuple(text.split())
    content = np.array([word in MEANINGS or word[0].isdigit() for word in found])
    return Words(
        found,
        np.where(content, 2.0, 0.3).astype(np.float32),
        content,
        np.array([MEANINGS.get(word, LITTLE) for word in found], dtype=np.float32),
    )


def features(first: str, second: str) -> dict[str, float]:
    return pair_features(words(first), words(second), 0.9)


def test_the_same_text_leaves_nothing_over() -> None:
    found = features("the cat sees the car", "the cat sees the car")
    assert found["match_min_lo"] == pytest.approx(1, abs=1e-3)
    assert found["overlap"] == pytest.approx(1)
    assert (found["left_count_hi"], found["remainders"], found["one_sided"]) == (0, NONE_LEFT, 0)
    assert (found["same_bag"], found["inversions"], found["bigrams"]) == (1, 0, 1)


def test_another_word_counts_by_how_near_its_meaning_is() -> None:
    near, far = features("the cat", "the feline"), features("the cat", "the car")
    assert near["remainders"] > far["remainders"]
    assert near["match_min_lo"] > far["match_min_lo"]
    assert near["loss_max_hi"] < far["loss_max_hi"]


def test_a_word_that_only_one_text_has_is_seen() -> None:
    found = features("cat sees", "cat sees car")
    assert (found["one_sided"], found["remainders"]) == (1, ONE_LEFT)
    assert (found["left_content_lo"], found["left_content_hi"]) == (0, 1)


def test_two_words_that_change_places_are_an_inversion() -> None:
    found = features("cat sees car", "car sees cat")
    assert found["same_bag"] == 1
    assert found["inversions"] == 3
    assert found["inverted_share"] == 1
    assert features("cat sees car", "cat sees car")["inverted_share"] == 0


def test_numbers_are_compared_as_they_stand() -> None:
    assert features("cat 7", "cat 8")["same_digits"] == 0
    assert features("cat 7", "7 cat")["same_digits"] == 1


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [("what cat", "what car", 1), ("who sees", "why sees", 0), ("cat", "what cat", 0)],
)
def test_question_words_are_compared(first: str, second: str, same: float) -> None:
    assert features(first, second)["same_question_word"] == same


@pytest.mark.parametrize(
    ("first", "second"),
    [("the cat sees", "car"), ("cat cat car", "car 7"), ("the", "the the"), ("cat", "the car sees cat")],
)
def test_it_does_not_matter_which_text_comes_first(first: str, second: str) -> None:
    assert features(first, second) == pytest.approx(features(second, first))
