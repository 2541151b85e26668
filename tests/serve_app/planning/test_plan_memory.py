"""Memory of one device, against what vLLM itself was seen to report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planned_engines import request
from support import model_configs as configs

from serve_app.planning import (
    Device,
    EngineRequest,
    StoredWeights,
    find_device,
    kv_bytes_per_token,
    read_architecture,
)
from serve_app.planning.memory import activation_bytes, graph_count, memory
from serve_app.planning.weights import loaded, on_device

GIB = 2**30


def device(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


def sized(
    config: dict[str, Any], asked: EngineRequest, on: Device, stored: StoredWeights | None = None
) -> Any:
    shape = read_architecture(config)
    return memory(shape, asked, on, weights=on_device(loaded(shape, stored, asked), shape, asked))


@pytest.mark.parametrize(
    ("config", "engine", "expected"),
    [
        (configs.SMOLLM2_135M, {}, 2 * 30 * 3 * 64 * 2),
        (configs.LLAMA_8B, {}, 131_072),
        (configs.LLAMA_8B, {"kv_cache_dtype": "fp8"}, 65_536),
        (configs.LLAMA_8B, {"kv_cache_dtype": "int8_per_token_head"}, 2 * 32 * 8 * (128 + 4)),
        (configs.LLAMA_8B, {"dtype": "float32"}, 262_144),
        (configs.LLAMA_70B, {"tensor_parallel_size": 4}, 2 * 80 * 2 * 128 * 2),
        (configs.LLAMA_70B, {"tensor_parallel_size": 16}, 2 * 80 * 1 * 128 * 2),
        (configs.LLAMA_70B, {"pipeline_parallel_size": 4}, 2 * 20 * 8 * 128 * 2),
        (configs.DEEPSEEK_V3, {"tensor_parallel_size": 8}, 61 * 576 * 2),
        (configs.DEEPSEEK_V3, {"kv_cache_dtype": "fp8_ds_mla"}, 61 * 656),
    ],
)
def test_a_tokens_kv_cache(config: dict[str, Any], engine: dict[str, Any], expected: float) -> None:
    assert kv_bytes_per_token(read_architecture(config), request(**engine)) == expected


PUBLISHED = (
    (configs.LLAMA_8B, 1, None, 14.99, 4.76, 51.38),
    (configs.QWEN3_06B, 1, None, 1.12, 5.56, 64.45),
    (configs.QWEN3_32B, 1, None, 61.03, 5.64, 4.45),
    (configs.QWEN3_32B, 2, None, 30.59, 5.64, 34.49),
    (configs.LLAMA_70B, 2, "fp8", 33.88, 4.84, 32.00),
)
"""Config, tensor parallel size, quantization, and GiB of weights, activations and KV cache as llm-d measured
them: vLLM 0.11 on an H100 with a share of 0.9 and 1,024 sequences. That version had the first model runner
alone and took nothing off for CUDA graphs before the KV cache."""


@pytest.mark.parametrize("published", PUBLISHED)
def test_the_estimate_is_near_what_vllm_reported(published: tuple[Any, ...]) -> None:
    config, ranks, quantization, weights, activations, kv = published
    asked = request(
        tensor_parallel_size=ranks,
        gpu_memory_utilization=0.9,
        enforce_eager=True,
        quantization=quantization,
        speculation={"method": "ngram", "num_speculative_tokens": 1},  # which brings the first runner
    )
    found = sized(config, asked, device("H100"))

    assert asked.first_runner
    assert found.weights / GIB == pytest.approx(weights, rel=0.03)
    assert found.activations / GIB == pytest.approx(activations, rel=0.02)
    assert found.kv_bytes / GIB == pytest.approx(kv, rel=0.1)


def test_a_large_mixture_of_experts_leaves_what_was_published() -> None:
    """github.com/vllm-project/vllm/issues/21348 (2025-07): 8.11 GiB on each of four H100, when vLLM had the
    first runner alone."""
    asked = request(tensor_parallel_size=4, gpu_memory_utilization=0.9, env={"VLLM_USE_V2_MODEL_RUNNER": "0"})
    found = sized(configs.QWEN3_235B_FP8, asked, device("H100"))
    assert found.kv_bytes / GIB == pytest.approx(8.11, rel=0.25)


def test_a_cpu_engine_holds_what_its_cache_was_given() -> None:
    asked = request(
        accelerator="cpu", cpu_kv_cache_gib=1, max_num_seqs=16, max_model_len=4096, dtype="bfloat16"
    )
    found = sized(configs.SMOLLM2_135M, asked, device("cpu"))

    blocks = GIB // (128 * 23_040)
    assert found.tokens == blocks * 128 == 46_592
    assert found.requests(4096) == pytest.approx(blocks / 32)


def test_the_environment_of_a_cpu_engine_sets_its_cache_too() -> None:
    asked = request(accelerator="cpu", env={"VLLM_CPU_KVCACHE_SPACE": "2"})
    assert asked.kv_cache_bytes == 2 * GIB


def test_a_cpu_engine_without_a_size_takes_its_share_of_the_machine() -> None:
    asked = request(accelerator="cpu", gpu_memory_utilization=0.5)
    found = sized(configs.SMOLLM2_135M, asked, replace(device("cpu"), memory_gib=16))
    assert found.kv_bytes == pytest.approx(8 * GIB - found.fixed)


def test_the_second_runner_reserves_less_for_its_sampler() -> None:
    shape = read_architecture(configs.LLAMA_8B)
    second = activation_bytes(shape, request(), device("H100"))
    first = activation_bytes(
        shape, request(speculation={"method": "ngram", "num_speculative_tokens": 2}), device("H100")
    )
    assert second < first / 4


def test_long_steps_need_more_than_the_sampler() -> None:
    shape = read_architecture(configs.LLAMA_8B)
    short, long = (
        activation_bytes(shape, request(max_num_seqs=8, max_num_batched_tokens=tokens), device("H100"))
        for tokens in (2048, 32768)
    )
    assert long == pytest.approx(16 * short)


@pytest.mark.parametrize(
    ("name", "tokens", "sequences"),
    [("H100", 8192, 1024), ("B200", 16384, 1024), ("A100-80G", 2048, 256), ("L4", 2048, 256)],
)
def test_unset_limits_are_vllms_for_the_device(name: str, tokens: int, sequences: int) -> None:
    asked = request()
    assert asked.batched_tokens(device(name)) == tokens
    assert asked.sequences(device(name)) == sequences


def test_set_limits_stay() -> None:
    asked = request(max_num_seqs=7, max_num_batched_tokens=99)
    assert (asked.sequences(device("H100")), asked.batched_tokens(device("H100"))) == (7, 99)


def test_graphs_are_counted_as_vllm_captures_them() -> None:
    assert graph_count(256) == 51 + 35
    assert graph_count(8) == 3 + 2 + 3 + 1
    assert graph_count(1024) == 51 + 51


def test_eager_mode_has_no_graphs() -> None:
    eager, usual = (
        sized(configs.LLAMA_8B, request(enforce_eager=each), device("H100")) for each in (True, False)
    )
    assert eager.graphs == 0
    assert 0.3 < usual.graphs / GIB < 1.2


def test_without_a_device_only_what_the_model_needs_is_known() -> None:
    shape = read_architecture(configs.LLAMA_8B)
    found = memory(shape, request(), None, weights=16e9)
    assert (found.usable, found.kv_bytes, found.tokens, found.requests(1000)) == (None, None, None, None)
    assert found.fixed > 16e9


def test_only_whole_blocks_count() -> None:
    shape = read_architecture(configs.LLAMA_8B)
    asked = request(options={"kv_cache_memory_bytes": 131_072 * 16 * 10 + 1, "block_size": 16})
    found = memory(shape, asked, device("H100"), weights=16e9)
    assert (found.blocks, found.tokens) == (10, 160)
    assert found.requests(17) == 5.0
