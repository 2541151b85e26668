"""The cross-encoder's training: a tiny model learns, and thresholds keep their aims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from cache_lab.cross_export import export
from cache_lab.cross_training import PairModel, Plan, fit, logits, open_tokenizer
from cache_lab.pairs import LabelledPair
from cache_lab.rates import TRAFFIC, rates
from cache_lab.thresholds import AIMS, calibrate, record_of, threshold
from support.cross_encoder import make_cross_encoder

from serve_app.cache.cross_encoder import Card, CrossEncoder
from serve_app.cache.cross_encoder.card import Calibration


def pair(query: str, candidate: str, stratum: str) -> LabelledPair:
    return LabelledPair(query, candidate, stratum.startswith("para"), stratum)


TWO = [pair("how far is it ?", "is it far ?", "para:x"), pair("how far is it ?", "is it near ?", "hard:x")]


def tiny(folder: Path) -> Path:
    make_cross_encoder(folder)
    return folder


def test_a_tiny_model_learns_two_pairs_again_and_again_the_same_and_serves_them(tmp_path: Path) -> None:
    weights = tiny(tmp_path / "weights")
    threads = torch.get_num_threads()
    try:
        first, seen = fit(weights, TWO * 16, Plan(epochs=2, threads=1), tmp_path / "kept.pt")
        second, _ = fit(weights, TWO * 16, Plan(epochs=2, threads=1))
    finally:
        torch.set_num_threads(threads)
    assert seen == 64
    tokenizer = open_tokenizer(weights)
    ours = logits(first, tokenizer, TWO)
    assert ours.tolist() == logits(second, tokenizer, TWO).tolist()
    again = PairModel(weights)
    again.load_state_dict(torch.load(tmp_path / "kept.pt", weights_only=True))
    assert logits(again.eval(), tokenizer, TWO).tolist() == ours.tolist()
    export(first, weights, tmp_path / "served")
    card = Card("tiny", 80, {"balanced": 0.7}, Calibration(1.0, 0.0, 0.0), {}, (), {})
    encoder = CrossEncoder(card, tmp_path / "served")
    served = [encoder.logit(each.candidate, each.query) or 0.0 for each in TWO]
    assert served == pytest.approx(ours.tolist(), abs=0.1)


def scored() -> tuple[list[LabelledPair], np.ndarray]:
    pairs = [pair(f"p{n}", f"p{n}'", "para:x") for n in range(100)]
    pairs += [pair(f"d{n}", f"d{n}'", "diff:x") for n in range(100)]
    pairs += [pair(f"h{n}", f"h{n}'", "hard:x") for n in range(100)]
    return pairs, np.concatenate([np.linspace(0.6, 0.99, 100), np.full(100, 0.1), np.linspace(0.1, 0.8, 100)])


@pytest.mark.parametrize("name", ["balanced", "strict"])
def test_the_threshold_keeps_its_aim_and_is_no_stricter_than_that(name: str) -> None:
    pairs, scores = scored()
    aim = AIMS[name]
    least = threshold(pairs, scores, aim)
    at, below = (rates(pairs, scores >= value) for value in (least, least - 0.02))
    assert at.false_share(TRAFFIC).value <= aim.false_share
    assert at.rate("hard") <= aim.hard
    assert below.false_share(TRAFFIC).value > aim.false_share or below.rate("hard") > aim.hard


def test_calibration_turns_logits_into_shares_of_the_mix() -> None:
    pairs, scores = scored()
    logit, cosine = np.log(scores / (1 - scores)), np.full(300, 0.8)
    calibration = calibrate(pairs, logit, cosine)
    found = [calibration.probability(*each) for each in zip(logit, cosine, strict=True)]
    # In the mix 30 of 100 near look-ups are paraphrases.
    shares = (np.mean(found[:100]), np.mean(found[100:200]), np.mean(found[200:]))
    assert 0.3 * shares[0] + 0.65 * shares[1] + 0.05 * shares[2] == pytest.approx(0.3, abs=0.02)
    assert shares[0] > 0.8
    assert shares[1] < 0.1


def test_the_record_tells_hits_and_wrong_ones_of_each_range_by_itself() -> None:
    pairs = [pair(f"p{n}", f"p{n}'", "para:x") for n in range(100)]
    pairs += [pair(f"d{n}", f"d{n}'", "diff:x") for n in range(100)]
    scores = np.concatenate([np.full(60, 0.95), np.full(40, 0.7), np.full(99, 0.1), np.full(1, 0.7)])
    low, high = record_of(pairs, scores, [0.6, 0.9])
    assert high == (0.9, 60.0, 0.0)
    assert low[:2] == (0.6, 40.0)
    # One in a hundred of the different ones, weighted as in traffic: 0.65 × 1 % beside 0.30 × 100 %.
    assert low[2] == pytest.approx(100 * 0.0065 / (0.0065 + 0.30), abs=0.05)
