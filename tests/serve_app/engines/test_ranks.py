"""Data-parallel ranks are for models with experts."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.engines import check_data_parallel
from serve_app.planning.architecture import read_architecture
from serve_app.settings import EngineSettings

DENSE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
}
EXPERTS = DENSE | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def lines(config: dict[str, Any], ranks: int) -> list[str]:
    engine = EngineSettings(data_parallel_size=ranks)
    return [str(problem) for problem in check_data_parallel("engine", engine, read_architecture(config))]


@pytest.mark.parametrize(("config", "ranks"), [(DENSE, 1), (EXPERTS, 1), (EXPERTS, 4), ({}, 4)])
def test_experts_are_shared_and_what_is_not_known_is_left_to_vllm(config: dict[str, Any], ranks: int) -> None:
    assert lines(config, ranks) == []


def test_a_dense_model_is_pointed_to_replicas() -> None:
    (line,) = lines(DENSE, 4)
    assert line.startswith("engine.data_parallel_size = 4: ")
    assert line.endswith("use `replicas: 4` instead")
