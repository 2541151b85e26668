"""How deep a draft can go, and whether it counts words as its target does."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.engines import check_depth, same_vocabulary, vocabulary_of
from serve_app.planning.architecture import read_architecture
from serve_app.settings import SpeculationSettings

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
    "architectures": ["LlamaForCausalLM"],
}


def depth_lines(draft: dict[str, Any] | None, predictors: int = 0, **fields: Any) -> list[str]:
    target = read_architecture(SHAPE | {"num_nextn_predict_layers": predictors})
    return [str(problem) for problem in check_depth("engine", SpeculationSettings(**fields), target, draft)]


@pytest.mark.parametrize(("predictors", "depth"), [(1, 1), (1, 4), (2, 1), (2, 2), (2, 4), (3, 2)])
def test_layers_that_predict_may_be_used_whole_times(predictors: int, depth: int) -> None:
    assert depth_lines(None, predictors, method="mtp", num_speculative_tokens=depth) == []


def test_a_depth_between_two_rounds_of_predicting_layers_is_refused() -> None:
    (line,) = depth_lines(None, 2, method="mtp", num_speculative_tokens=3)
    assert line.startswith("engine.speculation.num_speculative_tokens = 3: ")
    assert line.endswith("predicts 2 tokens at a time; use 2 or a multiple of it")


@pytest.mark.parametrize("name", ["medusa_num_heads", "num_heads"])
def test_medusa_drafts_one_token_a_head(name: str) -> None:
    medusa: dict[str, Any] = {"method": "medusa", "model": "owner/medusa"}
    assert depth_lines({name: 5}, **medusa, num_speculative_tokens=5) == []
    (line,) = depth_lines({name: 5}, **medusa, num_speculative_tokens=6)
    assert line.endswith("the draft has 5 heads, one for each token; use at most 5")


def test_the_heads_of_attention_are_no_medusa_heads() -> None:
    draft: dict[str, Any] = {"method": "draft_model", "model": "owner/d", "num_speculative_tokens": 8}
    assert depth_lines({"num_heads": 4}, **draft) == []


def test_vocabularies_are_read_in_each_form() -> None:
    added = [{"id": 2, "content": "<s>"}]
    assert vocabulary_of({"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": added}) == {
        "a": 0,
        "b": 1,
        "<s>": 2,
    }
    assert vocabulary_of({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}) == {"a": 0, "b": 1}


@pytest.mark.parametrize("tokenizer", [{}, {"model": None}, {"model": {"vocab": None}}])
def test_a_tokenizer_of_another_form_has_no_vocabulary(tokenizer: dict[str, Any]) -> None:
    assert vocabulary_of(tokenizer) == {}


def test_equal_numbers_make_one_vocabulary() -> None:
    words = {str(number): number for number in range(1000)}
    reserved = {token: number for token, number in words.items() if number < 995}
    moved = {token: number + 1 for token, number in words.items()}
    assert same_vocabulary(words, dict(words)) is True
    assert same_vocabulary(words, reserved) is True
    assert same_vocabulary(words, moved) is False
    assert same_vocabulary(words, {}) is None
