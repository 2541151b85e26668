"""Weights: counted from the shape, taken from the files, spread over ranks and stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planned_engines import request
from support import model_configs as configs

from serve_app.planning import StoredWeights, find_device, read_architecture
from serve_app.planning.weights import (
    active_parameters,
    loaded,
    on_device,
    packs_embeddings,
    parameters,
    stage_layers,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("config", "count"),
    [each[1:] for each in configs.PARAMETERS],
    ids=[each[0] for each in configs.PARAMETERS],
)
def test_the_shape_alone_gives_the_number_of_weights(config: dict[str, Any], count: int) -> None:
    assert parameters(read_architecture(config)).total == pytest.approx(count, rel=2e-3)


def test_few_experts_serve_a_token() -> None:
    active = active_parameters(read_architecture(configs.QWEN3_30B_A3B))
    assert active == pytest.approx(3.0e9, rel=0.1)  # the A3B of its name
    assert active_parameters(read_architecture(configs.MIXTRAL_8X7B)) == pytest.approx(12.8e9, rel=0.02)


def test_files_go_before_the_shape() -> None:
    shape = read_architecture(configs.LLAMA_8B)
    stored = StoredWeights(18_000_000_000, (("BF16", 9_000_000_000),))
    assert loaded(shape, stored, request()).total == pytest.approx(18e9)
    assert loaded(shape, None, request()).total == pytest.approx(16.06e9, rel=1e-3)


def test_float32_files_are_loaded_in_sixteen_bits() -> None:
    shape = read_architecture(configs.LLAMA_8B | {"torch_dtype": "float32"})
    stored = StoredWeights(32_121_044_992, (("F32", 8_030_261_248),))
    assert loaded(shape, stored, request()).total == pytest.approx(16.06e9, rel=1e-3)
    assert loaded(shape, stored, request(dtype="float32")).total == pytest.approx(32.12e9, rel=1e-3)


def test_an_index_without_headers_is_taken_by_its_bytes() -> None:
    shape = read_architecture(configs.LLAMA_8B)
    assert loaded(shape, StoredWeights(16_060_522_496), request()).total == pytest.approx(16.06e9, rel=1e-3)


def test_quantising_while_loading_leaves_embedding_and_head() -> None:
    shape = read_architecture(configs.LLAMA_8B)
    outer = 2 * 128256 * 4096
    found = loaded(shape, None, request(quantization="fp8"))
    assert found.embedding + found.head == 2 * outer
    assert found.total == pytest.approx(2 * outer + (8_030_261_248 - outer), rel=1e-3)


def test_a_quantised_checkpoint_stays_as_its_files_are() -> None:
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 128}
    shape = read_architecture(configs.LLAMA_8B | {"quantization_config": quantization})
    stored = StoredWeights(5_730_000_000, (("BF16", 1_050_000_000), ("I32", 900_000_000)))
    assert loaded(shape, stored, request()).total == pytest.approx(5.73e9)


def test_experts_alone_can_be_quantised() -> None:
    shape = read_architecture(configs.QWEN3_30B_A3B)
    plain, small = (loaded(shape, None, request(quantization=name)) for name in (None, "experts_int8"))
    assert small.experts == plain.experts / 2
    assert small.attention == plain.attention


def test_tensor_parallelism_divides_the_weights() -> None:
    shape = read_architecture(configs.LLAMA_70B)
    groups = loaded(shape, None, request())
    whole = on_device(groups, shape, request())
    assert whole == pytest.approx(groups.total)
    assert on_device(groups, shape, request(tensor_parallel_size=4)) == pytest.approx(whole / 4, rel=1e-3)


def test_kv_projections_are_repeated_where_heads_run_out() -> None:
    shape = read_architecture(configs.QWEN3_30B_A3B)
    groups = loaded(shape, None, request())
    four, eight = (on_device(groups, shape, request(tensor_parallel_size=ranks)) for ranks in (4, 8))
    assert (
        four / 2
        < eight
        == pytest.approx(
            (groups.total - groups.kv - groups.replicated) / 8 + groups.kv / 4 + groups.replicated
        )
    )


def test_expert_parallelism_spreads_experts_over_all_ranks() -> None:
    shape = read_architecture(configs.QWEN3_30B_A3B)
    groups = loaded(shape, None, request())
    engine = {"tensor_parallel_size": 2, "data_parallel_size": 4}
    spread = on_device(groups, shape, request(**engine, enable_expert_parallel=True))
    assert on_device(groups, shape, request(**engine)) - spread == pytest.approx(
        groups.experts * (1 / 2 - 1 / 8)
    )


def test_the_fullest_pipeline_stage_counts() -> None:
    shape = read_architecture(configs.LLAMA_70B)
    groups = loaded(shape, None, request())
    staged = on_device(groups, shape, request(pipeline_parallel_size=2))
    assert staged == pytest.approx(groups.layers / 2 + groups.head)


def test_a_tied_embedding_lies_on_both_ends_of_a_pipeline() -> None:
    shape = read_architecture(configs.LLAMA_1B)
    groups = loaded(shape, None, request())
    assert groups.head == 0
    assert on_device(groups, shape, request()) == pytest.approx(groups.total)
    assert on_device(groups, shape, request(pipeline_parallel_size=2)) == pytest.approx(
        groups.layers / 2 + groups.embedding
    )


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [(80, 4, (20, 20, 20, 20)), (61, 4, (15, 15, 16, 15)), (62, 4, (15, 16, 16, 15)), (30, 4, (7, 8, 8, 7))],
)
def test_left_over_layers_go_before_the_last_stage(
    layers: int, stages: int, expected: tuple[int, ...]
) -> None:
    assert stage_layers(layers, stages) == expected


def test_a_layer_that_predicts_further_tokens_is_not_loaded_with_the_model() -> None:
    shape = read_architecture(configs.DEEPSEEK_V3)
    stored = StoredWeights(688_586_727_753)
    with_it = loaded(replace(shape, mtp_layers=0), stored, request()).total
    assert loaded(shape, stored, request()).total == pytest.approx(with_it * 61 / 62, rel=2e-3)


@pytest.mark.parametrize(
    ("tied", "stages", "copies"), [(False, 1, 2), (True, 1, 2), (False, 2, 1), (True, 2, 1)]
)
def test_a_packed_copy_of_each_embedding_and_head_may_be_held(tied: bool, stages: int, copies: int) -> None:
    """Of as large ones, as here: so many copies on the fullest device."""
    shape = read_architecture(configs.LLAMA_8B | {"tie_word_embeddings": tied})
    groups = loaded(shape, None, request())
    asked = request(pipeline_parallel_size=stages)
    more = on_device(groups, shape, asked, packs_embeddings=True) - on_device(groups, shape, asked)
    assert more == pytest.approx(copies * groups.embedding)


@pytest.mark.parametrize(
    ("accelerator", "dtype", "has_bf16_units", "packs"),
    [
        ("gpu", "float32", None, False),
        ("cpu", "float32", False, True),
        ("cpu", "bfloat16", False, False),
        ("cpu", "bfloat16", None, False),
        ("cpu", "bfloat16", True, True),
    ],
)
def test_cpus_pack_embeddings_where_they_can_multiply_them(
    accelerator: str, dtype: str, has_bf16_units: bool | None, packs: bool
) -> None:
    cpu = find_device("cpu")
    assert cpu is not None
    device = replace(cpu, has_bf16_units=has_bf16_units)
    asked = request(accelerator=accelerator, dtype=dtype)
    assert packs_embeddings(read_architecture(configs.LLAMA_8B), asked, device) is packs
