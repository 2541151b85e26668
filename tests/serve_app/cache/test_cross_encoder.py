"""The cross-encoder that ships: its files load, and it tells a few fixed pairs apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from serve_app.cache.cross_encoder import Card, CrossEncoder, find_cross_encoder
from serve_app.cache.cross_encoder.card import Calibration
from serve_app.cache.cross_encoder.library import CARD_FILE, folder_of, trained_folder

MINILM = "sentence-transformers/all-MiniLM-L6-v2"

SAME = (
    ("How do I reset my password?", "I forgot my password, how can I set a new one?"),
    ("How tall is Mount Everest?", "What is the height of Mount Everest?"),
    ("How do I delete my account?", "What do I have to do to remove my account?"),
)
OTHER = (
    ("How do I reset my password?", "How do I reset my router?"),
    ("How tall is Mount Everest?", "Who was the first to climb Mount Everest?"),
    ("How do I delete my account?", "Who can see my account?"),
)
COSINE = 0.85


@pytest.fixture(scope="module")
def encoder() -> CrossEncoder:
    found = find_cross_encoder(MINILM)
    assert found is not None
    return found


def test_paraphrases_score_above_questions_with_other_answers(encoder: CrossEncoder) -> None:
    same, other = ([encoder.score(*pair, COSINE) for pair in pairs] for pairs in (SAME, OTHER))
    assert min(same) > max(other)


def test_a_pairs_score_does_not_depend_on_what_was_scored_with_it(encoder: CrossEncoder) -> None:
    together = [encoder.logit(*pair) for pair in (*SAME, *OTHER)]
    assert [encoder.logit(*pair) for pair in reversed((*SAME, *OTHER))] == together[::-1]


@pytest.mark.parametrize("text", ["", "x" * 50_000, "\ud800 odd", "日本語のテキスト"])
def test_odd_texts_have_a_score(encoder: CrossEncoder, text: str) -> None:
    assert 0 <= encoder.score(text, "How do I reset my password?", COSINE) <= 1


def test_what_the_model_cannot_read_whole_is_no_hit(encoder: CrossEncoder) -> None:
    assert encoder.score("a b " * 200, "How do I reset my password?", 1.0) == 0.0
    assert encoder.score("x" * 50_000, "How do I reset my password?", 1.0) == 0.0


def test_the_card_says_what_was_trained_and_how_sure_a_hit_is(encoder: CrossEncoder) -> None:
    card = encoder.card
    assert card.embedder == MINILM
    assert 0 < card.thresholds["balanced"] <= card.thresholds["strict"] <= 1
    assert card.record == tuple(sorted(card.record))
    assert {"data", "training", "limits"} <= card.about.keys()


def test_the_files_are_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in trained_folder().rglob("*")) <= 25e6


def test_a_probability_rises_with_logit_and_cosine_and_never_overflows() -> None:
    calibration = Calibration(1.0, 2.0, -1.0)
    assert calibration.probability(1.0, 0.9) > calibration.probability(0.0, 0.9)
    assert calibration.probability(0.0, 0.9) > calibration.probability(0.0, 0.8)
    assert calibration.probability(1e9, 1.0) == pytest.approx(1.0)
    assert calibration.probability(-1e9, 1.0) == pytest.approx(0.0)


def test_an_embedder_has_the_one_of_its_name_or_none(tmp_path: Path) -> None:
    assert find_cross_encoder("owner/unknown") is None
    assert folder_of("/models/sentence-transformers--all-MiniLM-L6-v2/") == folder_of(MINILM)


def test_files_that_cannot_be_used_are_named(tmp_path: Path, encoder: CrossEncoder) -> None:
    mine = tmp_path / "all-MiniLM-L6-v2"
    mine.mkdir()
    (mine / CARD_FILE).write_text("{}")
    with pytest.raises(ValueError, match=str(mine)):
        find_cross_encoder(MINILM, tmp_path)
    (mine / CARD_FILE).write_bytes(msgspec.json.encode(encoder.card))
    shutil.copy(folder_of(MINILM) / "tokenizer.json", mine)
    (mine / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ValueError, match=str(mine)):
        find_cross_encoder(MINILM, tmp_path)
    assert isinstance(encoder.card, Card)
