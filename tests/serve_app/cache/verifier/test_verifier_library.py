"""Trained verifiers on disk, and the one that ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serve_app.cache.guards.registry import GUARDS
from serve_app.cache.verifier.forest import LEAF, Forest
from serve_app.cache.verifier.library import find_verifier, function_words, save_verifier
from serve_app.cache.verifier.verifier import VerifierCard

SHIPPED = "sentence-transformers/all-MiniLM-L6-v2"
CARD = VerifierCard(
    "owner/model-v1.5",
    ("cosine", "guard_numbers"),
    {"float32": {"default": 0.5, "strict": 0.9}, "int8": {"default": 0.4, "strict": 0.8}},
    "test",
    ((0.5, 9.0, 1.0),),
)
STUMP = Forest(
    roots=np.array([0], np.int32),
    feature=np.array([0, LEAF, LEAF], np.int16),
    threshold=np.array([0.9, 0, 0], np.float32),
    right=np.array([2, 0, 0], np.int32),
    value=np.array([0, 0.25, 0.75], np.float32),
)


def test_what_was_saved_is_found_again(tmp_path: Path) -> None:
    save_verifier(CARD, STUMP, tmp_path)
    verifier = find_verifier("owner/model-v1.5", GUARDS, tmp_path)
    assert verifier is not None
    assert verifier.card == CARD


def test_each_precision_has_thresholds_and_an_unknown_one_those_of_the_full_one() -> None:
    assert CARD.threshold("strict") == 0.9
    assert CARD.threshold("strict", "int8") == 0.8
    assert CARD.threshold("default", "bfloat16") == 0.5


@pytest.mark.parametrize(
    "name", ["owner/model-v1.5", "/models/model-v1.5/", "/cache/models/owner--model-v1.5"]
)
def test_a_prepared_folder_has_the_name_of_its_model(tmp_path: Path, name: str) -> None:
    save_verifier(CARD, STUMP, tmp_path)
    assert find_verifier(name, GUARDS, tmp_path) is not None


def test_another_embedder_has_no_verifier(tmp_path: Path) -> None:
    save_verifier(CARD, STUMP, tmp_path)
    assert find_verifier("owner/model-v1", GUARDS, tmp_path) is None


def test_a_forest_that_asks_for_more_than_the_card_names_is_refused(tmp_path: Path) -> None:
    forest = replace(STUMP, feature=np.array([2, LEAF, LEAF], np.int16))
    save_verifier(CARD, forest, tmp_path)
    with pytest.raises(ValueError, match="more features"):
        find_verifier("model-v1.5", GUARDS, tmp_path)


def test_a_verifier_needs_the_guards_it_was_trained_with(tmp_path: Path) -> None:
    save_verifier(replace(CARD, features=("cosine", "guard_of_old")), STUMP, tmp_path)
    with pytest.raises(ValueError, match="guard_of_old"):
        find_verifier("model-v1.5", GUARDS, tmp_path)


def test_the_shipped_verifier_knows_guards_that_run_and_is_stricter_when_strict() -> None:
    verifier = find_verifier(SHIPPED, GUARDS)
    assert verifier is not None
    known = {name for name in verifier.card.features if name.startswith("guard_")}
    assert known
    assert known <= {f"guard_{name}" for name in GUARDS}
    for dtype in ("float32", "int8"):
        assert 0.5 < verifier.card.threshold("default", dtype) < verifier.card.threshold("strict", dtype) < 1


def test_question_words_and_negations_are_told_apart_from_function_words() -> None:
    words = function_words()
    assert {"the", "of", "please"} <= words
    assert not {"not", "never", "no", "without"} & words
