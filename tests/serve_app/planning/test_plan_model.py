"""A whole plan: what fits, what does not and what would, and where replicas find room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planned_engines import model
from support import model_configs as configs

from serve_app.planning import (
    Demand,
    Load,
    ModelFiles,
    ModelPlan,
    StoredWeights,
    Trace,
    check_cluster,
    cost,
    find_device,
    plan_model,
    report,
)

GIB = 2**30


def planned(
    config: dict[str, Any], device: str | None = "H100", draft: dict[str, Any] | None = None, **more: Any
) -> ModelPlan:
    """``more`` are the engine's settings, and ``replicas``."""
    replicas = more.pop("replicas", 1)
    on = None if device is None else find_device(device)
    files = None if draft is None else ModelFiles(draft)
    return plan_model(0, model(more, replicas=replicas), ModelFiles(config), files, on)


def test_a_model_that_fits_has_no_problem_and_an_engine() -> None:
    plan = planned(configs.LLAMA_8B, max_model_len=16384)
    assert plan.problems == ()
    assert plan.engine is not None
    assert plan.engine.max_num_seqs == 1024
    assert plan.memory.tokens == plan.engine.kv_tokens > 300_000


def test_weights_that_do_not_fit_name_the_parallel_size_that_does() -> None:
    (problem,) = planned(configs.LLAMA_70B, max_model_len=8192).problems
    assert problem.setting == "models[0].engine.tensor_parallel_size"
    assert "H100 gives 72.85 GiB" in problem.reason
    assert problem.works.startswith("use tensor_parallel_size 2,")
    assert planned(configs.LLAMA_70B, max_model_len=8192, tensor_parallel_size=2).problems == ()
    (longer,) = planned(configs.LLAMA_70B, max_model_len=65536).problems
    assert longer.works.startswith("use tensor_parallel_size 4,")


def test_a_context_that_does_not_fit_names_the_one_that_does() -> None:
    (problem,) = planned(configs.QWEN3_32B, max_model_len=40960, max_num_seqs=64).problems
    assert problem.setting == "models[0].engine.max_model_len"
    fitting = int(problem.works.removeprefix("use at most ").split(",")[0])
    assert planned(configs.QWEN3_32B, max_model_len=fitting, max_num_seqs=64).problems == ()
    assert "tensor_parallel_size 2" in problem.works


def test_the_models_own_context_is_checked_when_none_is_set() -> None:
    plan = planned(configs.LLAMA_8B, "L4")
    assert plan.context == 131072
    (problem,) = plan.problems
    assert (problem.setting, problem.value) == ("models[0].engine.max_model_len", None)


def test_a_draft_takes_memory_for_weights_and_cache() -> None:
    speculation = {"method": "draft_model", "model": "owner/draft", "num_speculative_tokens": 4}
    plain = planned(configs.LLAMA_70B, "H200", tensor_parallel_size=4)
    drafted = planned(
        configs.LLAMA_70B, "H200", configs.LLAMA_1B, tensor_parallel_size=4, speculation=speculation
    )
    assert drafted.memory.draft == pytest.approx(2 * 1_235_814_400 / 4, rel=1e-2)
    added = drafted.memory.kv_per_token - plain.memory.kv_per_token
    assert added == 2 * 16 * 2 * 64 * 2


def test_a_draft_that_does_not_fit_is_named_itself() -> None:
    speculation = {"method": "draft_model", "model": "owner/draft", "num_speculative_tokens": 4}
    plan = planned(
        configs.LLAMA_8B, "L4", configs.LLAMA_8B, max_model_len=4096, max_num_seqs=16, speculation=speculation
    )
    (problem,) = plan.problems
    assert (problem.setting, problem.value) == ("models[0].engine.speculation.model", "owner/draft")
    assert "smaller draft" in problem.works


def test_an_eagle_head_takes_what_its_file_holds() -> None:
    speculation = {"method": "eagle3", "model": "owner/head", "num_speculative_tokens": 3}
    settings = model({"speculation": speculation})
    head = ModelFiles(configs.EAGLE3_8B, StoredWeights(850_000_000))
    plan = plan_model(0, settings, ModelFiles(configs.LLAMA_8B), head, find_device("H100"))
    assert plan.problems == ()
    assert plan.memory.draft == 850_000_000
    assert plan.memory.kv_per_token == 131_072 * 33 / 32


def test_mtp_layers_are_loaded_for_speculation_only() -> None:
    engine = {"tensor_parallel_size": 8, "max_model_len": 32768}
    speculation = {"method": "mtp", "num_speculative_tokens": 1}
    plain = planned(configs.DEEPSEEK_V3, "H200", **engine)
    speculating = planned(configs.DEEPSEEK_V3, "H200", **engine, speculation=speculation)
    assert plain.problems == speculating.problems == ()
    assert speculating.memory.draft == pytest.approx(plain.memory.weights / 61, rel=0.05)
    assert speculating.memory.kv_per_token == plain.memory.kv_per_token * 62 / 61


def test_a_cpu_engine_whose_cache_is_larger_than_the_machine_names_what_is_left() -> None:
    cpu = find_device("cpu")
    assert cpu is not None
    settings = model(
        {"accelerator": "cpu", "cpu_kv_cache_gib": 64, "max_model_len": 4096, "max_num_seqs": 16}
    )
    plan = plan_model(0, settings, ModelFiles(configs.SMOLLM2_135M), None, replace(cpu, memory_gib=8.0))
    (problem,) = plan.problems
    assert (problem.setting, problem.value) == ("models[0].engine.cpu_kv_cache_gib", 64)
    assert problem.works == "use at most 6 GiB"


def test_a_cache_too_small_for_one_request_says_what_it_holds() -> None:
    settings = model({"accelerator": "cpu", "cpu_kv_cache_gib": 1, "max_num_seqs": 4})
    plan = plan_model(0, settings, ModelFiles(configs.LLAMA_1B), None, find_device("cpu"))
    (problem,) = plan.problems
    assert problem.works == "use at most 32768, or a larger KV cache"


def test_without_a_device_the_shape_is_checked_all_the_same() -> None:
    plan = planned(configs.LLAMA_8B, None, tensor_parallel_size=3)
    assert [problem.setting for problem in plan.problems] == ["models[0].engine.tensor_parallel_size"]
    assert plan.speed is None
    assert plan.engine is None


def test_an_unknown_architecture_is_sized_by_its_files() -> None:
    files = ModelFiles({"architectures": ["SomethingNew"]}, StoredWeights(20 * GIB))
    plan = plan_model(0, model({"tensor_parallel_size": 2}), files, None, find_device("H100"))
    assert plan.problems == ()
    assert plan.memory.weights == 10 * GIB
    assert plan.memory.tokens is None
    assert "are unknown" in " ".join(plan.notes)


@pytest.mark.parametrize(
    ("config", "engine", "said"),
    [
        (
            configs.QWEN3_30B_A3B,
            {"tensor_parallel_size": 8},
            "4 KV heads over 8 ranks: each is held 2 times.",
        ),
        (configs.DEEPSEEK_V3, {"tensor_parallel_size": 8}, "each of the 8 ranks holds the whole KV cache"),
        (configs.LLAMA_70B, {"tensor_parallel_size": 16}, "the network between them"),
        (configs.LLAMA_70B, {"pipeline_parallel_size": 3}, "Pipeline stages of 27, 27, 26 layers"),
        (configs.GEMMA3_27B, {}, "Sliding windows of 1024 tokens are not subtracted"),
        (configs.GEMMA3_27B, {}, "vision encoder"),
        (configs.LLAMA_8B, {}, "No safetensors files"),
        (configs.LLAMA_8B, {"quantization": "experts_int8"}, "this model has none"),
    ],
)
def test_what_a_plan_leaves_open_is_said(config: dict[str, Any], engine: dict[str, Any], said: str) -> None:
    assert said in " ".join(planned(config, "B200", **engine).notes)


def test_more_replicas_than_gpus_name_the_number_that_fits() -> None:
    plan = planned(configs.LLAMA_70B, tensor_parallel_size=4, max_model_len=8192, replicas=3)
    (problem,) = check_cluster([plan], 8)
    assert (problem.setting, problem.value, problem.works) == ("models[0].replicas", 3, "use at most 2")
    assert list(check_cluster([plan], 12)) == []


def test_scaling_is_bounded_by_the_cluster_and_by_other_models() -> None:
    scaled = planned(configs.LLAMA_70B, tensor_parallel_size=4, replicas={"min": 1, "max": 4})
    other = planned(configs.LLAMA_8B, replicas=2)
    (problem,) = check_cluster([scaled, other], 16)
    assert (problem.setting, problem.works) == ("models[0].replicas.max", "use at most 3")
    assert list(check_cluster([scaled, other], 18)) == []


def test_a_replica_larger_than_the_cluster_says_what_is_missing() -> None:
    (problem,) = check_cluster([planned(configs.LLAMA_70B, tensor_parallel_size=8)], 4)
    assert "cluster of" in problem.works


def test_models_on_cpus_take_no_gpu() -> None:
    plan = planned(configs.SMOLLM2_135M, "cpu", accelerator="cpu", cpu_kv_cache_gib=1, replicas=5)
    assert list(check_cluster([plan], 0)) == []


def test_a_report_shows_memory_capacity_speed_load_and_cost() -> None:
    plan = planned(configs.LLAMA_8B, max_model_len=16384)
    trace = Trace(tuple(each / 2 for each in range(100)), (1000,) * 99 + (20_000,), (100,) * 100)
    shown = "\n".join(report(plan, Demand(Load(4.0, 1000, 200), trace, price=2.0)))
    for part in (
        "1 x H100",
        "weights         14.96",
        "131,072 bytes per token",
        "requests of 16,384 tokens at once",
        "prefill",
        "Allen-Cunneen",
        "Kiefer-Wolfowitz",
        "1 requests are longer than the context",
        "per million tokens",
    ):
        assert part in shown


def test_a_plan_with_problems_estimates_no_load() -> None:
    plan = planned(configs.LLAMA_70B)
    shown = "\n".join(report(plan, Demand(Load(4.0, 1000, 200))))
    assert plan.problems
    assert "Allen-Cunneen" not in shown


def test_the_cost_of_a_million_tokens() -> None:
    found = cost(price_per_device_hour=3.6, devices=2, rate=1.0, prompt_tokens=900, output_tokens=100)
    assert found.per_hour == 7.2
    assert found.per_million_output == pytest.approx(20.0)
    assert found.per_million_tokens == pytest.approx(2.0)


JUNK: tuple[object, ...] = (None, "x", -1, 0, 1, 1.5, True, [], ["x"], {}, {"x": 1}, 10**12)


@pytest.mark.parametrize(
    "config", [configs.DEEPSEEK_V3, configs.QWEN3_235B_FP8, configs.GEMMA3_27B["text_config"]]
)
def test_a_config_with_nonsense_is_planned_as_far_as_it_goes(config: dict[str, Any]) -> None:
    for key in config:
        for junk in JUNK:
            plan = planned(config | {key: junk}, tensor_parallel_size=8, pipeline_parallel_size=2)
            assert list(report(plan, Demand(Load(1.0, 100, 10))))


@pytest.mark.parametrize("inner", ["rope_scaling", "quantization_config"])
def test_nonsense_inside_a_config_is_left_out(inner: str) -> None:
    for key in ("factor", "type", "quant_method", "bits", "weight_block_size", "group_size", "config_groups"):
        for junk in JUNK:
            config = configs.DEEPSEEK_V3 | {inner: configs.DEEPSEEK_V3[inner] | {key: junk}}
            assert planned(config, tensor_parallel_size=8).architecture.layers == 61


@pytest.mark.parametrize(("has_vnni", "is_said"), [(False, True), (True, False), (None, False)])
def test_int8_on_a_cpu_without_instructions_for_it_is_said_to_be_slow(
    has_vnni: bool | None, is_said: bool
) -> None:
    weights = {"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}}}
    config = configs.LLAMA_8B | {"quantization_config": {"quant_method": "compressed-tensors", **weights}}
    cpu = find_device("cpu")
    assert cpu is not None
    device = replace(cpu, has_vnni=has_vnni)
    plan = plan_model(0, model({"accelerator": "cpu"}), ModelFiles(config), None, device)
    assert ("VNNI" in " ".join(plan.notes)) is is_said


def test_replicas_that_prefill_take_devices_of_their_own() -> None:
    apart = {"disaggregation": {"prefill_replicas": 2}}
    plan = planned(configs.LLAMA_8B, max_model_len=16384, replicas=2, **apart)
    assert "prefilled by 2 more replicas" in " ".join(plan.notes)
    assert list(check_cluster([plan], 4)) == []
    (problem,) = check_cluster([plan], 3)
    assert str(problem).startswith("models[0].replicas = 2")
    assert "use at most 1" in str(problem)
