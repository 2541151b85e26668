"""Errors that would appear after minutes of loading: each names its setting and a value that would work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planned_engines import model, request
from support import model_configs as configs

from serve_app.planning import Problem, configured, engine_request, find_device, read_architecture
from serve_app.planning.checks import check_draft, check_shape, valid_tensor_parallel


def shape_problems(config: dict[str, Any], device: str | None = None, **engine: Any) -> list[Problem]:
    found = None if device is None else find_device(device)
    return list(check_shape("engine", read_architecture(config), request(**engine), found))


def draft_problems(
    target: dict[str, Any], draft: dict[str, Any] | None, same: bool | None = None, **speculation: Any
) -> list[Problem]:
    settings = {"method": "draft_model", "num_speculative_tokens": 3, "model": "owner/draft"} | speculation
    shape = None if draft is None else read_architecture(draft)
    engine = {"tensor_parallel_size": 4, "speculation": settings}
    return list(check_draft("engine", read_architecture(target), shape, request(**engine), same))


@pytest.mark.parametrize(
    ("config", "engine"),
    [
        (configs.SMOLLM2_135M, {}),
        (configs.SMOLLM2_135M, {"tensor_parallel_size": 3}),
        (configs.LLAMA_70B, {"tensor_parallel_size": 8, "quantization": "fp8", "max_model_len": 131072}),
        (configs.LLAMA_70B, {"tensor_parallel_size": 16, "pipeline_parallel_size": 3}),
        (configs.DEEPSEEK_V3, {"tensor_parallel_size": 8, "quantization": "fp8"}),
        (configs.QWEN3_30B_A3B, {"tensor_parallel_size": 8, "enable_expert_parallel": True}),
        ({"architectures": ["SomethingNew"]}, {"tensor_parallel_size": 7}),
    ],
)
def test_what_works_has_no_problem(config: dict[str, Any], engine: dict[str, Any]) -> None:
    assert shape_problems(config, "H100", **engine) == []


def test_tensor_parallelism_that_divides_no_heads_names_the_sizes_that_do() -> None:
    (problem,) = shape_problems(configs.SMOLLM2_135M, tensor_parallel_size=2)

    assert problem.setting == "engine.tensor_parallel_size"
    assert "9 attention heads" in problem.reason
    assert problem.works == "use one of 1, 3"
    assert str(problem).startswith("engine.tensor_parallel_size = 2: it does not divide")


def test_kv_heads_are_divided_or_repeated_whole() -> None:
    config = configs.LLAMA_8B | {
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "intermediate_size": 14400,
    }
    (problem,) = shape_problems(config, tensor_parallel_size=12)
    assert "8 KV heads" in problem.reason
    assert 16 in valid_tensor_parallel(read_architecture(config))


def test_the_mlp_is_divided_whole() -> None:
    (problem,) = shape_problems(configs.QWEN3_32B | {"intermediate_size": 25601}, tensor_parallel_size=2)
    assert "width 25601" in problem.reason


def test_quantised_blocks_must_not_be_cut() -> None:
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    config = configs.QWEN3_30B_A3B | {"quantization_config": quantization}
    (problem,) = shape_problems(config, tensor_parallel_size=4)
    assert "parts of 192" in problem.reason
    assert problem.works == "use one of 1, 2"


def test_more_stages_than_layers_cannot_be() -> None:
    (problem,) = shape_problems(configs.LLAMA_1B, pipeline_parallel_size=17)
    assert problem.setting == "engine.pipeline_parallel_size"
    assert problem.works == "use at most 16"


def test_expert_parallelism_needs_experts() -> None:
    (problem,) = shape_problems(configs.LLAMA_8B, tensor_parallel_size=2, enable_expert_parallel=True)
    assert problem.setting == "engine.enable_expert_parallel"
    assert "no experts" in problem.reason


def test_a_context_longer_than_the_models_names_the_longest() -> None:
    (problem,) = shape_problems(configs.SMOLLM2_135M, max_model_len=8193)
    assert problem.setting == "engine.max_model_len"
    assert problem.works == "use at most 8192"


def test_a_context_can_be_allowed_or_overridden_as_in_vllm() -> None:
    assert (
        shape_problems(configs.SMOLLM2_135M, max_model_len=9000, env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"})
        == []
    )
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    asked = model({"max_model_len": 131072, "options": {"hf_overrides": {"rope_scaling": yarn}}})
    shape = read_architecture(configured(configs.QWEN3_32B, asked))
    assert list(check_shape("engine", shape, engine_request(asked), None)) == []


def test_an_unknown_quantization_names_a_known_one() -> None:
    asked = replace(request(), quantization="fp_8")
    (problem,) = check_shape("engine", read_architecture(configs.LLAMA_8B), asked, None)
    assert problem.setting == "engine.quantization"
    assert "did you mean" in problem.works
    assert "compressed-tensors" in problem.works


def test_awq_needs_a_checkpoint_made_for_it() -> None:
    (problem,) = shape_problems(configs.LLAMA_8B, quantization="awq")
    assert "not quantised" in problem.reason
    assert "'fp8'" in problem.works


def test_another_quantization_than_the_checkpoints_is_refused() -> None:
    config = configs.LLAMA_8B | {
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}
    }
    (problem,) = shape_problems(config, quantization="awq")
    assert problem.works == "leave it out, or use 'gptq'"
    for same in ("gptq", "gptq_marlin", "moe_wna16", "humming"):
        assert shape_problems(config, quantization=same) == []


def test_a_checkpoint_that_vllm_cannot_read_is_said_before_loading() -> None:
    config = configs.LLAMA_8B | {"quantization_config": {"quant_method": "hqq_plus"}}
    (problem,) = shape_problems(config)
    assert "'hqq_plus'" in problem.reason


def test_an_unknown_type_of_kv_cache_names_the_known_ones() -> None:
    asked = replace(request(), kv_cache_dtype="int3")
    (problem,) = check_shape("engine", read_architecture(configs.LLAMA_8B), asked, None)
    assert problem.setting == "engine.kv_cache_dtype"
    assert "fp8" in problem.works


def test_bfloat16_needs_a_device_that_has_it() -> None:
    (problem,) = shape_problems(configs.LLAMA_1B, "T4", dtype="bfloat16")
    assert problem.works == "use 'float16' or 'auto'"
    assert shape_problems(configs.LLAMA_1B, "T4") == []


def test_a_draft_of_the_same_family_fits() -> None:
    assert draft_problems(configs.LLAMA_70B, configs.LLAMA_1B, same=True) == []


def test_a_draft_with_another_vocabulary_names_the_size_that_fits() -> None:
    (problem,) = draft_problems(configs.LLAMA_70B, configs.QWEN3_06B)
    assert problem.setting == "engine.speculation.model"
    assert problem.value == "owner/draft"
    assert "151936" in problem.reason
    assert "128256" in problem.works
    assert "ngram" in problem.works


def test_equal_sizes_with_another_tokenizer_are_no_match() -> None:
    (problem,) = draft_problems(configs.LLAMA_70B, configs.LLAMA_1B, same=False)
    assert "other ids to the same tokens" in problem.reason


def test_a_head_has_a_vocabulary_of_its_own() -> None:
    assert draft_problems(configs.LLAMA_8B, configs.EAGLE3_8B, method="eagle3") == []


def test_a_head_for_another_model_is_found_by_its_width() -> None:
    (problem,) = draft_problems(configs.LLAMA_70B, configs.EAGLE3_8B, method="eagle3")
    assert "hidden states of 4096" in problem.reason


def test_a_draft_that_cannot_be_divided_runs_on_one_rank() -> None:
    odd = configs.LLAMA_1B | {"num_attention_heads": 30, "num_key_value_heads": 10}
    (problem,) = draft_problems(configs.LLAMA_70B, odd)
    assert problem.setting == "engine.speculation.draft_tensor_parallel_size"
    assert problem.works == "use 1"
    assert draft_problems(configs.LLAMA_70B, odd, draft_tensor_parallel_size=1) == []


def test_mtp_needs_a_model_that_was_trained_for_it() -> None:
    (problem,) = draft_problems(configs.LLAMA_8B, None, method="mtp", model=None)
    assert problem.setting == "engine.speculation.method"
    assert draft_problems(configs.DEEPSEEK_V3, None, method="mtp", model=None) == []


def test_whole_experts_are_not_cut_by_tensor_parallelism() -> None:
    assert shape_problems(configs.QWEN3_235B_FP8, tensor_parallel_size=8, enable_expert_parallel=True) == []
    (problem,) = shape_problems(configs.QWEN3_235B_FP8, tensor_parallel_size=8)
    assert "parts of 192" in problem.reason
