"""Perplexity, agreement and the card."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from quantization.figures import (
    Card,
    Pair,
    Speed,
    agreement,
    as_json,
    as_markdown,
    common,
    perplexity,
    same_share,
)

CARD = Card(
    source="owner/small",
    scheme="INT8 W8A8",
    method="GPTQ",
    calibration="256 samples, 30,000 tokens, written by the model itself",
    samples=256,
    sample_tokens=30_000,
    held="held.txt",
    held_tokens=1500,
    size_bytes=Pair(200 * 2**20, 150 * 2**20),
    perplexity=Pair(20.0, 20.5),
    same_next_token=0.95,
    speed=Speed((50.0, 52.0), (40.0, 41.6), 0.75),
    no_speed="",
    machine="x86_64, Linux",
    versions={"llmcompressor": "1.0"},
)


def test_a_uniform_guess_among_n_tokens_has_perplexity_n() -> None:
    assert perplexity([3 * math.log(8), 5 * math.log(8)], [3, 5]) == pytest.approx(8)


def test_pieces_weigh_as_many_tokens_as_they_predict() -> None:
    assert perplexity([0.0, 4.0], [6, 2]) == pytest.approx(math.exp(0.5))


def test_perplexity_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        perplexity([], [])


def test_same_share_counts_places() -> None:
    assert same_share([1, 2, 3, 4], [1, 9, 3, 4]) == 0.75
    with pytest.raises(ValueError, match="cannot compare 1 values with 2"):
        same_share([1], [1, 2])


def test_agreement_ends_at_the_first_difference() -> None:
    assert agreement([[1, 2, 3, 4]], [[1, 9, 3, 4]]) == 0.25
    assert agreement([[1, 2], [3, 4]], [[1, 2], [3, 4]]) == 1
    assert agreement([[1, 2], [3, 4]], [[1], []]) == 0.25


def test_agreement_needs_an_answer_to_each() -> None:
    with pytest.raises(ValueError, match="cannot compare 2 answers"):
        agreement([[1], [2]], [[1]])
    with pytest.raises(ValueError, match="cannot compare"):
        agreement([[]], [[]])


def test_common_is_the_equal_beginning() -> None:
    assert common([1, 2, 3], [1, 2, 4]) == 2
    assert common([], [1]) == 0


def test_the_card_for_programs_has_ratios() -> None:
    values = json.loads(json.dumps(as_json(CARD)))
    assert values["size_bytes"]["ratio"] == 0.75
    assert values["perplexity"]["ratio"] == 1.025
    assert values["speed"]["tpot_ms"] == pytest.approx({"before": 51.0, "after": 40.8, "ratio": 0.8})


def test_the_card_for_people_has_every_figure() -> None:
    text = as_markdown(CARD)
    assert text.startswith("# owner/small, INT8 W8A8\n")
    assert "| weights, MiB | 200.0 | 150.0 | 0.750 |" in text
    assert "| TPOT in vLLM, 1 stream, ms | 51.00 | 40.80 | 0.800 |" in text
    assert "| greedy tokens in vLLM before the first difference | 1 | 0.7500 | |" in text


def test_a_speed_that_was_not_measured_says_why() -> None:
    card = replace(CARD, speed=None, no_speed="no kernel here")
    assert "not measured: no kernel here" in as_markdown(card)
    assert as_json(card)["speed"] is None
