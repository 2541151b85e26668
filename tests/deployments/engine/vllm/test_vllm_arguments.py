"""Settings become vLLM's arguments, and what the installed vLLM does not take is refused by name."""

from __future__ import annotations

import dataclasses
import os
import typing
from pathlib import Path
from typing import Any, Literal

import pytest

from deployments.engine.vllm.arguments import (
    DEPTH_SCHEDULER,
    DEPTHS,
    EAGER_WORKER,
    GUARDED_SCHEDULER,
    NO_DOMAIN,
    check_arguments,
    check_config,
    depth_schedule,
    engine_arguments,
    placement_group_config,
    speculative_config,
)
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.openai.schemas import KINDS
from serve_app.settings import (
    AutoscalingSettings,
    EngineSettings,
    ModelSettings,
    SpeculationSettings,
    load_file,
)
from serve_app.settings.engine import (
    OWN_SETTING,
    OWN_SPECULATION_SETTING,
    QUANTIZATIONS,
    CudagraphMode,
    DepthStep,
    KvCacheDtype,
    LoraRank,
)

CONFIGS = sorted((Path(__file__).parents[4] / "config").glob("*.yaml"))
FULL: dict[str, Any] = {
    "tensor_parallel_size": 4,
    "data_parallel_size": 2,
    "enable_expert_parallel": True,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 4096,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 1024,
    "scheduling_policy": "priority",
    "kv_cache_dtype": "fp8",
    "kv_offload": {"size_gib": 16.0, "backend": "native"},
    "cudagraph_mode": "full_and_piecewise",
    "optimization_level": 2,
    "performance_mode": "interactivity",
    "structured_outputs_backend": "xgrammar",
    "enable_sleep_mode": True,
    "quantization": "fp8",
    "lora": {"adapters": {"mine": "owner/mine"}, "max_lora_rank": 32, "max_cpu_loras": 4},
    "speculation": {"method": "ngram", "num_speculative_tokens": 4, "options": {"max_model_len": 2048}},
    "options": {
        "seed": 3,
        "stream_interval": 4,
        "compilation_config": {"cudagraph_capture_sizes": [1, 2]},
        "max_log_len": 10,
    },
}
NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 2}
STEPS = tuple(DepthStep(requests=first, tokens=depth) for first, depth in ((1, 4), (9, 2), (33, 0)))


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path)


def model(**engine: Any) -> ModelSettings:
    return ModelSettings(id="m", source="owner/m", engine=EngineSettings(**engine))


def message_for(store: ModelStore, **engine: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        check_arguments(model(**engine), store)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("model 'm': engine.")
    return line.removeprefix("model 'm': engine.")


def test_nothing_but_what_was_set_is_given(store: ModelStore) -> None:
    assert engine_arguments(model(), store) == {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "dtype": "auto",
        "allowed_media_domains": [NO_DOMAIN],
        "enforce_eager": False,
    }


def test_every_named_setting_reaches_vllm(store: ModelStore) -> None:
    arguments = engine_arguments(model(**FULL), store)
    assert arguments["lora_modules"] == [{"name": "mine", "path": "owner/mine"}]
    assert (arguments["kv_offloading_size"], arguments["stream_interval"]) == (16.0, 4)
    assert arguments["compilation_config"] == {
        "cudagraph_capture_sizes": [1, 2],
        "cudagraph_mode": "FULL_AND_PIECEWISE",
    }
    assert arguments["structured_outputs_config"] == {"backend": "xgrammar"}
    assert arguments["speculative_config"]["max_model_len"] == 2048
    same = FULL.keys() - {
        "kv_offload",
        "cudagraph_mode",
        "structured_outputs_backend",
        "lora",
        "speculation",
        "options",
    }
    assert {name: arguments[name] for name in same} == {name: FULL[name] for name in same}


@pytest.mark.parametrize(("accelerator", "given"), [("gpu", True), ("cpu", None)])
def test_where_replicas_may_sleep_vllm_takes_memory_that_it_can_give_back(
    store: ModelStore, accelerator: Literal["gpu", "cpu"], given: bool | None
) -> None:
    sleepy = model(accelerator=accelerator).model_copy(
        update={"replicas": AutoscalingSettings(max=2, sleeping=1)}
    )
    assert engine_arguments(sleepy, store).get("enable_sleep_mode") is given


def test_what_is_not_set_is_not_given_to_vllm(store: ModelStore) -> None:
    settings = SpeculationSettings(method="ngram", num_speculative_tokens=4)
    assert speculative_config(settings, store) == {"method": "ngram", "num_speculative_tokens": 4}


def test_a_prepared_draft_goes_before_the_hub(store: ModelStore) -> None:
    store.folder("owner/draft").mkdir(parents=True)
    settings = SpeculationSettings(method="draft_model", num_speculative_tokens=4, model="owner/draft")
    found = speculative_config(settings, store)
    assert found is not None
    assert found["model"] == str(store.folder("owner/draft"))


EAGLE3 = {"method": "eagle3", "model": "owner/head", "num_speculative_tokens": 4}


@pytest.mark.parametrize(("guard", "scheduler"), [(True, GUARDED_SCHEDULER), (False, DEPTH_SCHEDULER)])
def test_where_vllm_must_not_be_told_of_depths_the_scheduler_is(
    store: ModelStore, guard: bool, scheduler: str
) -> None:
    speculation = EAGLE3 | {"guard": guard, "depth_by_load": [dict(step) for step in STEPS]}
    options = {"additional_config": {"other": 1}}
    found = engine_arguments(model(speculation=speculation, options=options), store)
    assert "num_speculative_tokens_per_batch_size" not in found["speculative_config"]
    assert found["scheduler_cls"] == scheduler
    assert found["additional_config"] == {"other": 1, DEPTHS: depth_schedule(STEPS)}


def test_depths_by_load_are_ranges_without_gaps() -> None:
    steps = (
        DepthStep(requests=1, tokens=4),
        DepthStep(requests=9, tokens=2),
        DepthStep(requests=33, tokens=0),
    )
    schedule = depth_schedule(steps)
    assert [entry[:2] for entry in schedule[:2]] == [[1, 8], [9, 32]]
    assert [entry[2] for entry in schedule] == [4, 2, 0]


def test_vllm_reads_the_schedule_as_it_was_meant() -> None:
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    steps = (
        DepthStep(requests=1, tokens=4),
        DepthStep(requests=9, tokens=2),
        DepthStep(requests=33, tokens=0),
    )
    lookup = build_dynamic_sd_schedule_lookup(depth_schedule(steps), 128, 4)
    assert [lookup[batch] for batch in (1, 8, 9, 32, 33, 128)] == [4, 4, 2, 2, 0, 0]


@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_packing_is_rays_own_default(accelerator: Any) -> None:
    assert placement_group_config(EngineSettings(accelerator=accelerator)) is None


def test_placement_asks_for_one_device_a_worker() -> None:
    assert placement_group_config(EngineSettings(placement="strict_spread")) == {
        "bundle_per_worker": {"GPU": 1.0},
        "strategy": "STRICT_SPREAD",
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_passes(path: Path, store: ModelStore) -> None:
    (settings,) = load_file(path)
    for each in settings.models:
        if each.engine is not None:
            check_arguments(each, store)


def test_all_settings_together_pass(store: ModelStore) -> None:
    check_arguments(model(**FULL), store)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (
            {"options": {"max_logprob": 3}},
            "options.max_logprob = 3: vLLM has no such argument; did you mean 'max_logp",
        ),
        ({"options": {"zzz": 3}}, "options.zzz = 3: vLLM has no such argument; see `vllm serve"),
        ({"options": {"seed": "many"}}, "options.seed = 'many': "),
        ({"options": {"prefix_caching_hash_algo": "md5"}}, "options.prefix_caching_hash_algo = 'md5': "),
        ({"options": {"compilation_config": {"cudagraph_mod": 1}}}, "options.compilation_config = "),
        (
            {
                "speculation": {
                    "method": "ngram",
                    "num_speculative_tokens": 2,
                    "options": {"draft_sample": "greedy"},
                }
            },
            "speculation.options.draft_sample = 'greedy': vLLM's speculative_config has no such key",
        ),
        (
            {"quantization": "gguf"},
            "quantization = 'gguf': this vLLM has no such method: install the plug-in",
        ),
    ],
)
def test_what_vllm_does_not_take_is_named(store: ModelStore, engine: dict[str, Any], expected: str) -> None:
    assert message_for(store, **engine).startswith(expected)


def test_the_lists_in_the_settings_are_those_of_vllm() -> None:
    from vllm.config import CUDAGraphMode
    from vllm.config.cache import CacheDType
    from vllm.config.lora import MaxLoRARanks
    from vllm.model_executor.layers.quantization import QuantizationMethods

    assert set(QUANTIZATIONS) == {*typing.get_args(QuantizationMethods), "gguf"}
    assert set(typing.get_args(KvCacheDtype)) == set(typing.get_args(CacheDType))
    assert typing.get_args(LoraRank) == typing.get_args(MaxLoRARanks)
    assert {mode.upper() for mode in typing.get_args(CudagraphMode)} == {mode.name for mode in CUDAGraphMode}


def test_the_arguments_with_settings_of_other_names_are_vllms() -> None:
    from vllm.config import SpeculativeConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import FrontendArgs

    known = {field.name for kind in (AsyncEngineArgs, FrontendArgs) for field in dataclasses.fields(kind)}
    assert OWN_SETTING.keys() <= known
    assert OWN_SPECULATION_SETTING.keys() <= {field.name for field in dataclasses.fields(SpeculativeConfig)}


SMOLLM = "HuggingFaceTB/SmolLM2-135M-Instruct"
PREPARED = ModelStore(default_cache_dir())
needs_model = pytest.mark.skipif(not PREPARED.folder(SMOLLM).is_dir(), reason="SmolLM2 is not prepared")


def small(**engine: Any) -> ModelSettings:
    return ModelSettings(id="m", source=SMOLLM, engine=EngineSettings(accelerator="cpu", **engine))


@needs_model
@pytest.mark.parametrize(
    "engine",
    [
        {"enforce_eager": True, "kv_cache_dtype": "fp8"},
        {"optimization_level": 0, "performance_mode": "interactivity", "scheduling_policy": "priority"},
        {"enable_chunked_prefill": True, "long_prefill_token_threshold": 256, "pipeline_parallel_size": 2},
        {"tensor_parallel_size": 3, "max_model_len": 1024, "max_num_seqs": 8, "max_num_batched_tokens": 512},
        {"speculation": NGRAM | {"prompt_lookup_max": 3, "depth_by_load": [{"requests": 1, "tokens": 2}]}},
        {"speculation": {"method": "draft_model", "model": SMOLLM, "num_speculative_tokens": 2}},
        {"structured_outputs_backend": "xgrammar", "lora": {"adapters": {"a": "/adapters/a"}}},
    ],
    ids=",".join,
)
def test_vllms_own_configuration_is_built(engine: dict[str, Any]) -> None:
    before = dict(os.environ)
    check_config(small(**engine), PREPARED)
    assert dict(os.environ) == before


def test_a_head_node_without_a_gpu_leaves_vllms_check_to_the_engines_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There vLLM has no platform, and cannot build any configuration."""
    from vllm import platforms

    monkeypatch.setattr(platforms, "_current_platform", platforms.interface.UnspecifiedPlatform())
    store = ModelStore(tmp_path)
    store.folder("owner/target").mkdir(parents=True)
    gpu = ModelSettings(id="m", source="owner/target", engine=EngineSettings(accelerator="gpu"))
    check_config(gpu, store)


@needs_model
@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"tensor_parallel_size": 2}, "Total number of attention heads (9) must be divisible by"),
        ({"max_model_len": 100_000}, "User-specified max_model_len (100000) is greater than"),
        ({"options": {"block_size": 7, "watermark": 2.0}}, "less than 1"),
    ],
)
def test_vllms_own_words_are_passed_on(engine: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match="vLLM refuses these settings: ") as caught:
        check_config(small(**engine), PREPARED)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_what_another_node_will_run_is_not_built_here(store: ModelStore) -> None:
    check_config(ModelSettings(id="m", source="owner/m", engine=EngineSettings(max_model_len=10**9)), store)


def test_speculation_is_guarded_unless_something_else_is_asked_for(store: ModelStore) -> None:
    def scheduler(**engine: Any) -> Any:
        return engine_arguments(model(**engine), store).get("scheduler_cls")

    assert scheduler(speculation=NGRAM) == GUARDED_SCHEDULER
    assert scheduler() is None
    assert scheduler(speculation=NGRAM | {"guard": False}) is None
    assert scheduler(speculation=NGRAM, data_parallel_size=2) is None
    assert scheduler(speculation=NGRAM, options={"scheduler_cls": "mine.Scheduler"}) == "mine.Scheduler"


def test_only_an_eager_cpu_engine_has_a_worker_of_its_own(store: ModelStore) -> None:
    def worker(**engine: Any) -> Any:
        return engine_arguments(model(**engine), store).get("worker_cls")

    assert worker(accelerator="cpu", enforce_eager=True) == EAGER_WORKER
    assert worker(accelerator="cpu") is None, "a compiled product would be unrolled"
    assert worker(accelerator="cpu", lora={"adapters": {"a": "/a"}}) == EAGER_WORKER, (
        "vLLM does not compile it"
    )
    assert worker(accelerator="gpu", enforce_eager=True) is None
    mine = {"worker_cls": "mine.Worker"}
    assert worker(accelerator="cpu", enforce_eager=True, options=mine) == "mine.Worker"


@pytest.mark.parametrize(
    ("method", "guard", "schedule"),
    [("ngram", True, None), ("draft_model", False, None), ("draft_model", True, [4])],
)
def test_vllm_is_told_that_the_depth_of_a_guarded_draft_model_changes(
    store: ModelStore, method: Any, guard: bool, schedule: list[int] | None
) -> None:
    source = None if method == "ngram" else "owner/draft"
    settings = SpeculationSettings(method=method, num_speculative_tokens=4, model=source, guard=guard)
    found = (speculative_config(settings, store) or {}).get("num_speculative_tokens_per_batch_size")
    assert (found and [depth for _, _, depth in found]) == schedule


def test_every_constraint_on_an_answer_that_vllm_takes_is_bounded() -> None:
    from vllm.sampling_params import StructuredOutputsParams

    costs_nothing = {"json_object", "disable_any_whitespace", "disable_additional_properties"}
    known = {field.name for field in dataclasses.fields(StructuredOutputsParams) if field.init}
    assert known == {*KINDS} | costs_nothing


def test_an_engine_that_speculates_tells_how_many_drafts_were_accepted(store: ModelStore) -> None:
    name = "per_request_spec_decode_metrics"
    assert engine_arguments(model(speculation=NGRAM), store)[name] == "summary"
    assert name not in engine_arguments(model(), store)  # vLLM refuses it there
    chosen = model(speculation=NGRAM, options={name: "none"})
    assert engine_arguments(chosen, store)[name] == "none"
