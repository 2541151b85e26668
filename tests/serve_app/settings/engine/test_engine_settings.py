"""Engine settings that contradict each other, or that no vLLM takes, are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.settings import EngineSettings, parse_args
from serve_app.settings.engine import LoraSettings

NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 4}
DRAFT: dict[str, Any] = {"method": "draft_model", "num_speculative_tokens": 4, "model": "owner/draft"}
CPU: dict[str, Any] = {"accelerator": "cpu"}


def engine(**fields: Any) -> EngineSettings:
    model = {"id": "m", "source": "owner/m", "engine": fields}
    return parse_args({"models": [model]}, source="file.yaml").models[0].managed_engine


def message_for(**fields: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        engine(**fields)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("file.yaml: models[0].engine")
    return line


@pytest.mark.parametrize(
    "fields",
    [
        {"tensor_parallel_size": 2, "enable_expert_parallel": True},
        {"data_parallel_size": 4, "enable_expert_parallel": True},
        {"tensor_parallel_size": 4, "placement": "strict_pack"},
        {"pipeline_parallel_size": 2, "placement": "strict_spread"},
        {"enable_chunked_prefill": True, "max_num_batched_tokens": 512, "long_prefill_token_threshold": 256},
        {"enable_chunked_prefill": False, "max_model_len": 2048, "max_num_batched_tokens": 2048},
        {"max_num_seqs": 64, "max_num_batched_tokens": 64},
        {"scheduling_policy": "priority"},
        {"kv_cache_dtype": "fp8_e5m2"},
        {"kv_offload": {"size_gib": 20.0}},
        {"cudagraph_mode": "full_and_piecewise", "optimization_level": 2},
        {"enforce_eager": True, "cudagraph_mode": "none", "optimization_level": 0},
        {"performance_mode": "interactivity"},
        {"structured_outputs_backend": "xgrammar"},
        {"enable_sleep_mode": True},
        {"lora": {"adapters": {"a": "owner/a"}, "max_lora_rank": 64}},
        CPU | {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2, "enforce_eager": True},
        {"tensor_parallel_size": 4, "speculation": DRAFT | {"draft_tensor_parallel_size": 1}},
        {"tensor_parallel_size": 4, "speculation": DRAFT | {"draft_tensor_parallel_size": 4}},
        {"speculation": DRAFT | {"use_heterogeneous_vocab": True}},
        {"speculation": NGRAM | {"prompt_lookup_min": 2, "prompt_lookup_max": 2}},
        {"speculation": {"method": "mtp", "num_speculative_tokens": 1}},
        {"speculation": {"method": "suffix", "num_speculative_tokens": 32}},
        {"speculation": NGRAM | {"options": {"rejection_sample_method": "block"}}},
    ],
    ids=",".join,
)
def test_settings_that_fit_are_taken(fields: dict[str, Any]) -> None:
    engine(**fields)


@pytest.mark.parametrize(
    "name", ["awq", "gptq", "fp8", "compressed-tensors", "modelopt_fp4", "nvfp4_per_token", "gguf"]
)
def test_a_quantization_that_vllm_has_is_taken(name: str) -> None:
    assert engine(quantization=name).quantization == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gptq_marlim", "did you mean 'gptq_marlin'? expected one of: awq, auto_awq, "),
        ("FP8", "did you mean 'fp8'?"),
        ("zip", "unknown quantization; expected one of: awq,"),
        ("int8", "quantize the model first (scripts/quantize.py), then use 'compressed-tensors'"),
        ("w8a8", "'compressed-tensors' or leave this out"),
        ("NVFP4", "use 'modelopt_fp4' or 'compressed-tensors'"),
    ],
)
def test_an_unknown_quantization_is_answered_with_one_that_works(name: str, expected: str) -> None:
    message = message_for(quantization=name)
    assert f"models[0].engine.quantization = {name!r}: " in message
    assert expected in message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kv_cache_dtype": "fp9"}, "kv_cache_dtype = 'fp9': expected: 'auto', 'float16'"),
        ({"placement": "near"}, "placement = 'near': expected: 'pack', 'strict_pack', 'spread' or"),
        ({"scheduling_policy": "fair"}, "expected: 'fcfs' or 'priority'"),
        ({"structured_outputs_backend": "regex"}, "expected: 'auto', 'xgrammar', 'guidance'"),
        ({"optimization_level": 4}, "expected: 0, 1, 2 or 3"),
        ({"data_parallel_size": 0}, "data_parallel_size = 0: expected: greater than or equal to 1"),
        ({"kv_offload": {"size_gib": 0.0}}, "kv_offload.size_gib = 0.0: expected: greater than 0"),
        ({"enable_expert_parallel": True}, "set one of them to 2 or more, or leave it out"),
        ({"lora": {"adapters": {}}}, "lora.adapters = {}: expected:"),
        (
            {"lora": {"adapters": {"a": "b"}, "max_lora_rank": 17}},
            "lora.max_lora_rank = 17: expected: 1, 8, 16",
        ),
        ({"lora": {"adapters": {"": "b"}}}, "an adapter in `adapters` has no name"),
        (
            {"lora": {"adapters": {"a": "b"}, "max_loras": 4, "max_cpu_loras": 2}},
            "`max_cpu_loras` (2) is less than `max_loras` (4); expected at least 4",
        ),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, "(32) is less than `max_num_seqs` (64)"),
        (
            {"enable_chunked_prefill": False, "max_model_len": 4096, "max_num_batched_tokens": 2048},
            "expected at least 4096, or `enable_chunked_prefill: true`",
        ),
        (
            {"enable_chunked_prefill": False, "long_prefill_token_threshold": 64},
            "`long_prefill_token_threshold` needs chunked prefill",
        ),
        ({"max_model_len": 1024, "long_prefill_token_threshold": 2048}, "is above `max_model_len` (1024)"),
        ({"enforce_eager": True, "cudagraph_mode": "full"}, "`enforce_eager` captures no graphs"),
        ({"enforce_eager": True, "optimization_level": 2}, "`enforce_eager` compiles nothing"),
        (
            {
                "lora": {"adapters": {"a": "b"}},
                "speculation": NGRAM,
                "max_num_seqs": 64,
                "max_num_batched_tokens": 256,
            },
            "`max_num_seqs` × (`num_speculative_tokens` + 1) = 320",
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_what_contradicts_is_named_with_a_value_that_works(fields: dict[str, Any], expected: str) -> None:
    assert expected in message_for(**fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"placement": "spread"}, "use 'pack'"),
        ({"kv_cache_dtype": "nvfp4"}, "on a CPU expected one of: auto, fp8, fp8_e4m3, fp8_e5m2"),
        ({"kv_offload": {"size_gib": 1.0}}, "a CPU engine has `cpu_kv_cache_gib`"),
        ({"cudagraph_mode": "full"}, "`cudagraph_mode` needs a GPU: leave it out"),
        ({"enable_sleep_mode": True}, "leave it out, or use `accelerator: gpu`"),
    ],
)
def test_what_only_a_gpu_can_do_is_refused_on_a_cpu(fields: dict[str, Any], expected: str) -> None:
    assert expected in message_for(**CPU, **fields)


APART: dict[str, Any] = {"disaggregation": {"prefill_replicas": 1}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            CPU | {"disaggregation": {"prefill_replicas": 1, "connector": "lmcache"}},
            "`disaggregation.connector: lmcache` needs GPUs; on CPUs expected 'nixl'",
        ),
        ({"data_parallel_size": 2}, "`disaggregation` needs `data_parallel_size: 1`"),
        ({"kv_offload": {"size_gib": 4.0}}, "leave one of the two out"),
        ({"options": {"kv_transfer_config": {}}}, "take it out of `options`"),
        (
            {"disaggregation": {"prefill_replicas": 0}},
            "disaggregation.prefill_replicas = 0",
        ),
        (
            {"disaggregation": {"prefill_replicas": 1, "connector": "tcp"}},
            "disaggregation.connector = 'tcp'",
        ),
    ],
)
def test_prefill_and_decode_apart_do_not_go_with_everything(fields: dict[str, Any], expected: str) -> None:
    assert expected in message_for(**(APART | fields))


def test_prefill_and_decode_apart_can_be_set() -> None:
    disaggregation = EngineSettings(**APART).disaggregation
    assert disaggregation is not None
    assert disaggregation.connector == "nixl"


@pytest.mark.parametrize(
    ("speculation", "expected"),
    [
        ({"method": "medusa", "num_speculative_tokens": 4}, "needs `model`"),
        ({"method": "suffix", "num_speculative_tokens": 4, "model": "a/b"}, "'suffix' takes no `model`"),
        (NGRAM | {"prompt_lookup_min": 5, "prompt_lookup_max": 3}, "expected at most 3"),
        (DRAFT | {"prompt_lookup_max": 3}, "are for method 'ngram'"),
        (NGRAM | {"num_speculative_tokens": 33}, "expected: less than or equal to 32"),
        (NGRAM | {"use_heterogeneous_vocab": True}, "is for method 'draft_model'"),
        (DRAFT | {"draft_tensor_parallel_size": 3}, "is 3; expected 1 (1 or `tensor_parallel_size`)"),
        (NGRAM | {"options": {"method": "suffix"}}, "`options` may not set method"),
        (NGRAM | {"options": {"tensor-parallel-size": 2}}, "(use `draft_tensor_parallel_size`)"),
    ],
)
def test_speculation_that_cannot_work_is_refused(speculation: dict[str, Any], expected: str) -> None:
    assert expected in message_for(speculation=speculation)


def test_a_draft_may_run_on_one_device_or_on_all() -> None:
    message = message_for(tensor_parallel_size=4, speculation=DRAFT | {"draft_tensor_parallel_size": 2})
    assert "is 2; expected 1 or 4" in message


@pytest.mark.parametrize(
    ("method", "steps", "expected"),
    [
        ("ngram", [], "expected: Tuple should have at least 1 item"),
        ("ngram", [{"requests": 2, "tokens": 4}], "must begin at 1 and grow"),
        ("ngram", [{"requests": 1, "tokens": 4}, {"requests": 1, "tokens": 2}], "must begin at 1 and grow"),
        ("ngram", [{"requests": 1, "tokens": 5}], "expected at most 4"),
        (
            "suffix",
            [{"requests": 1, "tokens": 4}],
            "is for the methods draft_model, eagle, eagle3, mtp,",
        ),
    ],
)
def test_depths_by_load_begin_at_one_request_and_stay_below_the_depth(
    method: str, steps: list[dict[str, int]], expected: str
) -> None:
    assert expected in message_for(speculation=NGRAM | {"method": method, "depth_by_load": steps})


def test_data_parallel_ranks_cannot_choose_their_depths() -> None:
    speculation = NGRAM | {"depth_by_load": [{"requests": 1, "tokens": 4}]}
    assert "`data_parallel_size: 1`" in message_for(data_parallel_size=2, speculation=speculation)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("speculative_config", "speculation"),
        ("enable_lora", "lora"),
        ("lora-modules", "lora.adapters"),
        ("kv_offloading_size", "kv_offload.size_gib"),
    ],
)
def test_an_option_with_a_setting_of_its_own_is_refused_by_that_name(name: str, setting: str) -> None:
    assert (
        f"`options` may not set {name}: Promptly has its own setting for it (use `{setting}`)"
        in message_for(options={name: 1})
    )


def test_an_option_that_has_no_setting_is_left_to_vllm() -> None:
    assert engine(options={"seed": 3}).options == {"seed": 3}


def test_as_many_adapters_share_a_batch_as_are_given_up_to_a_bound() -> None:
    assert LoraSettings(adapters={"a": "x", "b": "y"}).batch_loras == 2
    assert LoraSettings(adapters={str(number): "x" for number in range(20)}).batch_loras == 8
    assert LoraSettings(adapters={"a": "x"}, max_loras=4).batch_loras == 4
