"""The shape of a model is read from its config, whatever the family calls things."""

from __future__ import annotations

from typing import Any

import pytest
from support import model_configs as configs

from serve_app.planning import read_architecture
from serve_app.planning.architecture import context_length


def test_a_llama_says_its_heads_layers_and_sizes() -> None:
    shape = read_architecture(configs.LLAMA_8B)

    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_dim) == (32, 32, 8, 128)
    assert (shape.hidden, shape.mlp, shape.vocab) == (4096, 14336, 128256)
    assert shape.is_known
    assert not shape.is_tied


def test_a_head_width_of_its_own_goes_before_the_quotient() -> None:
    assert read_architecture(configs.QWEN3_32B).head_dim == 128
    assert 5120 // 64 != 128


def test_a_config_without_kv_heads_has_as_many_as_heads() -> None:
    config = {key: value for key, value in configs.LLAMA_8B.items() if key != "num_key_value_heads"}
    assert read_architecture(config).kv_heads == 32


@pytest.mark.parametrize(
    ("config", "experts"),
    [
        (configs.MIXTRAL_8X7B, (8, 2, 14336)),
        (configs.QWEN3_30B_A3B, (128, 8, 768)),
        (configs.DEEPSEEK_V3, (256, 8, 2048)),
    ],
)
def test_experts_are_found_under_each_familys_name(
    config: dict[str, Any], experts: tuple[int, int, int]
) -> None:
    found = read_architecture(config).experts
    assert found is not None
    assert (found.count, found.active, found.size) == experts


def test_latent_attention_has_its_own_widths() -> None:
    latent = read_architecture(configs.DEEPSEEK_V3).latent
    assert latent is not None
    assert (latent.rank, latent.rope_dim, latent.query_rank) == (512, 64, 1536)


def test_a_multimodal_model_is_read_from_its_text_config() -> None:
    shape = read_architecture(configs.GEMMA3_27B)
    assert (shape.layers, shape.vocab, shape.dtype) == (62, 262208, "bfloat16")
    assert shape.has_vision
    assert shape.is_tied
    assert shape.sliding_window == 1024


def test_a_sliding_window_that_is_switched_off_is_none() -> None:
    config = configs.QWEN3_32B | {"sliding_window": 4096}
    assert read_architecture(config).sliding_window is None


def test_layers_of_linear_attention_hold_no_growing_cache() -> None:
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 16
    shape = read_architecture(configs.QWEN3_32B | {"layer_types": kinds})
    assert (shape.layers, shape.cached_layers) == (64, 16)


def test_an_unknown_architecture_is_read_as_far_as_it_goes() -> None:
    shape = read_architecture({"architectures": ["SomethingNew"], "vocab_size": 1000})
    assert not shape.is_known
    assert (shape.name, shape.vocab) == ("SomethingNew", 1000)


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        (None, 8192),
        ({"rope_type": "default", "rope_theta": 1e5}, 8192),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}, 8192),
        ({"rope_type": "linear", "factor": 4.0}, 32768),
        ({"rope_type": "dynamic", "factor": 2.0}, 16384),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16384),
        ({"rope_type": "yarn", "factor": 2.0}, 16384),
        ({"rope_type": "longrope", "factor": 32.0}, 8192),
    ],
)
def test_the_context_is_scaled_as_rope_says(rope: dict[str, Any] | None, expected: int) -> None:
    assert context_length({"max_position_embeddings": 8192, "rope_scaling": rope}) == expected
    assert context_length({"max_position_embeddings": 8192, "rope_parameters": rope}) == expected


def test_rope_per_layer_type_is_read_too() -> None:
    rope = {"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding": {"rope_type": "default"}}
    assert context_length({"max_position_embeddings": 8192, "rope_parameters": rope}) == 16384


def test_gemma3_states_its_scaled_context_already() -> None:
    assert read_architecture(configs.GEMMA3_27B).context == 131072


def test_the_smallest_of_several_lengths_is_the_context() -> None:
    assert context_length({"max_position_embeddings": 8192, "seq_length": 4096}) == 4096
    assert context_length({}) is None


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, ("awq", 4, 0, 128)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", 8, 128, 0)),
        ({"quant_method": "mxfp4"}, ("mxfp4", 4, 0, 0)),
        (
            {
                "quant_method": "compressed_tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 64}}},
            },
            ("compressed-tensors", 4, 0, 64),
        ),
    ],
)
def test_a_quantised_checkpoint_says_how(
    quantization: dict[str, Any], expected: tuple[str, int, int, int]
) -> None:
    found = read_architecture(configs.LLAMA_8B | {"quantization_config": quantization}).quantization
    assert found is not None
    assert (found.method, found.bits, found.block, found.group) == expected
