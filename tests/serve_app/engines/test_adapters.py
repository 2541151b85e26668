"""LoRA adapters that vLLM would refuse while it loads are refused with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.engines import AdapterFacts, check_adapters, fitting_rank
from serve_app.settings.engine import LoraSettings

GOOD: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj"],
    "bias": "none",
}
LORA = LoraSettings(adapters={"a": "owner/a", "b": "/adapters/b"})


def lines(**changed: Any) -> list[str]:
    return [
        str(problem) for problem in check_adapters("engine", LORA, {"a": AdapterFacts.of(GOOD | changed)})
    ]


@pytest.mark.parametrize("changed", [{}, {"r": 16}, {"modules_to_save": []}, {"bias": "none"}])
def test_an_adapter_as_peft_saves_it_is_taken(changed: dict[str, Any]) -> None:
    assert lines(**changed) == []


def test_a_rank_above_the_engines_is_answered_with_one_that_vllm_has() -> None:
    assert lines(r=48) == ["engine.lora.max_lora_rank = 16: an adapter has rank 48; use 64"]


def test_the_rank_of_a_single_matrix_counts() -> None:
    assert lines(rank_pattern={"q_proj": 20}) == [
        "engine.lora.max_lora_rank = 16: an adapter has rank 20; use 32"
    ]


def test_a_rank_above_all_is_the_adapters_fault() -> None:
    assert lines(r=1024) == [
        "engine.lora.max_lora_rank = 16: an adapter has rank 1024; use adapters of rank 512 or less"
    ]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"peft_type": "PREFIX_TUNING"}, "it is not a LoRA adapter but PREFIX_TUNING; merge it"),
        ({"use_dora": True}, "DoRA, which vLLM does not run; train it with `use_dora=False`"),
        ({"bias": "all"}, "it trains biases"),
        ({"modules_to_save": ["lm_head", "embed_tokens"]}, "whole modules (lm_head, embed_tokens)"),
        ({"lora_alpha": None}, "its adapter_config.json lacks lora_alpha; use an adapter that PEFT saved"),
    ],
)
def test_what_vllm_does_not_run_names_the_adapter(changed: dict[str, Any], expected: str) -> None:
    (line,) = lines(**changed)
    assert line.startswith("engine.lora.adapters.a = 'owner/a': ")
    assert expected in line


@pytest.mark.parametrize(("rank", "expected"), [(1, 1), (2, 8), (16, 16), (300, 320), (513, None)])
def test_ranks_are_those_of_vllm(rank: int, expected: int | None) -> None:
    assert fitting_rank(rank) == expected
