"""The decision that serves, with the real embedder's token vectors."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from support.cross_encoder import make_cross_encoder

from deployments.cache.decision import open_decision
from serve_app.cache.cross_encoder.library import folder_of
from serve_app.cache.decision import Decision
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import CacheSettings

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
needs_model = pytest.mark.skipif(
    not ModelStore(default_cache_dir()).folder(MINILM).is_dir(), reason="all-MiniLM-L6-v2 is not prepared"
)


def reason(decision: Decision, question: str, candidate: str, similarity: float) -> str | None:
    return decision.judge(decision.read(question), decision.read(candidate), similarity).reason


@needs_model
def test_a_paraphrase_hits_and_look_alikes_do_not() -> None:
    decision = open_decision(CacheSettings(), MINILM)
    assert reason(decision, "How do I reset my password?", "How can I reset my password?", 0.99) is None
    assert reason(decision, "Move 20 euros to savings", "Move 30 euros to savings", 0.98) == "numbers"
    assert reason(decision, "Can I fly from Rome to Oslo?", "Can I fly from Oslo to Rome?", 0.99) in {
        "names",
        "roles",
    }
    baked = reason(decision, "How do I bake bread?", "How do I freeze bread?", 0.80)
    assert baked in {"slot", "edit", "verifier"}


@needs_model
def test_a_hit_carries_the_verifiers_score() -> None:
    decision = open_decision(CacheSettings(), MINILM)
    question, candidate = "How do I reset my password?", "How can I reset my password?"
    verdict = decision.judge(decision.read(question), decision.read(candidate), 0.99)
    assert 0.9 < verdict.scores["verifier"] <= 1


REWORDED = (
    ("What is the capital of France?", "What is the capital city of France?"),
    ("How do I reset my password?", "What is the way to reset my password?"),
    ("Can you tell me how tall Everest is?", "How tall is Everest?"),
    ("How long do I boil an egg?", "For how long should I boil eggs?"),
)


@needs_model
def test_strict_refuses_some_of_what_balanced_lets_pass_and_nothing_else() -> None:
    balanced = open_decision(CacheSettings(decision="balanced"), MINILM)
    strict = open_decision(CacheSettings(), MINILM)
    pairs = [(*pair, similarity) for pair in REWORDED for similarity in (0.85, 0.90, 0.95, 0.99)]
    said = [(reason(balanced, *pair), reason(strict, *pair)) for pair in pairs]
    assert (None, None) in said
    assert (None, "verifier") in said
    assert all(when_balanced is None for when_balanced, when_strict in said if when_strict is None)


@needs_model
@pytest.mark.parametrize("text", ["x" * 100_000, "a b " * 50_000, "\u202e\u0000 odd", "日本語のテキスト"])
def test_odd_texts_are_judged_without_an_error(text: str) -> None:
    decision = open_decision(CacheSettings(), MINILM)
    assert reason(decision, text, "a plain question", 0.99) is not None


def test_the_settings_threshold_replaces_the_default_one() -> None:
    decision = open_decision(CacheSettings(decision="similarity", threshold=0.97), MINILM)
    assert reason(decision, "one", "two", 0.96) == "similarity"
    assert reason(decision, "one", "two", 0.97) is None


def test_an_embedder_without_a_verifier_has_the_guards_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="ray.serve"):
        decision = open_decision(CacheSettings(), "owner/unknown")
    assert reason(decision, "Pay 20 euros", "Pay 30 euros", 0.99) == "numbers"
    assert "no verifier was trained for embedder owner/unknown" in caplog.text


def test_a_verifier_without_its_files_leaves_the_guards_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "all-MiniLM-L6-v2"
    shutil.copytree(folder_of(MINILM), broken, ignore=shutil.ignore_patterns("*.onnx"))
    with caplog.at_level(logging.WARNING, logger="ray.serve"):
        decision = open_decision(CacheSettings(), MINILM, tmp_path)
    assert reason(decision, "Pay 20 euros", "Pay 30 euros", 0.99) == "numbers"
    assert decision.scale == "similarity"
    assert f"the verifier for {MINILM} cannot run" in caplog.text


@pytest.mark.parametrize(("least", "expected"), [(0.0, None), (1.0, "cross_encoder")])
def test_a_cross_encoder_decides_after_the_guards(tmp_path: Path, least: float, expected: str | None) -> None:
    chosen = {"source": make_cross_encoder(tmp_path), "least": least, "device": "cpu"}
    decision = open_decision(CacheSettings.model_validate({"cross_encoder": chosen}), MINILM)
    assert decision.is_slow
    verdict = decision.judge(decision.read("how far is it?"), decision.read("is it far?"), 0.95)
    assert verdict.reason == expected
    assert 0 < verdict.scores[decision.scale] < 1
    assert reason(decision, "Move 20 euros to savings", "Move 30 euros to savings", 0.98) == "numbers"


def test_a_cross_encoder_that_cannot_be_used_is_named_and_the_verifier_decides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for source, complaint in (
        (make_cross_encoder(tmp_path / "model", 3), "3 outputs"),
        (str(tmp_path / "nowhere"), "nowhere"),
    ):
        caplog.clear()
        chosen = {"source": source, "device": "cpu"}
        with caplog.at_level(logging.ERROR):
            decision = open_decision(CacheSettings.model_validate({"cross_encoder": chosen}), MINILM)
        assert decision.scale == "verifier"
        assert complaint in caplog.text


def test_only_english_hits_unless_the_settings_name_other_languages() -> None:
    pair = ("Wie setze ich mein Passwort zurück?", "wie setze ich mein Passwort zurück")
    assert reason(open_decision(CacheSettings(), "none"), *pair, 0.99) == "unmeasured_language"
    assert reason(open_decision(CacheSettings(languages=()), "none"), *pair, 0.99) is None
    assert reason(open_decision(CacheSettings(languages=("de",)), "none"), *pair, 0.99) is None
