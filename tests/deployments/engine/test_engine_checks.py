"""An engine that cannot start is refused from its files: one line, the setting and a value that works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.engine.checks import check_devices, check_engine, check_on_node, check_served
from deployments.platform.machine import GIB, this_machine
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore
from serve_app.settings import AutoscalingSettings, EngineSettings, ModelSettings

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "vocab_size": 256,
}
WORDS = {f"word{number}": number for number in range(256)}
ADAPTER: dict[str, Any] = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """A node with one prepared model, ``owner/target``."""
    made = ModelStore(tmp_path)
    write(made.folder("owner/target"), LLAMA)
    return made


def write(folder: Path, config: Any, words: dict[str, int] | None = WORDS, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(config))
    if words is not None:
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}}))
    return folder


def model(source: str = "owner/target", **engine: Any) -> ModelSettings:
    return ModelSettings(id="m", source=source, engine=EngineSettings(**engine))


def line_for(store: ModelStore, settings: ModelSettings) -> str:
    with pytest.raises(SettingsError) as caught:
        check_engine(settings, store)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("model 'm': ")
    return line.removeprefix("model 'm': ")


def draft(source: str, **fields: Any) -> dict[str, Any]:
    return {"method": "draft_model", "num_speculative_tokens": 4, "model": source} | fields


@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"tensor_parallel_size": 4, "pipeline_parallel_size": 4, "max_model_len": 2048},
        {"tensor_parallel_size": 8, "quantization": "fp8"},
        {"speculation": {"method": "ngram", "num_speculative_tokens": 4}},
    ],
)
def test_settings_that_fit_pass(store: ModelStore, engine: dict[str, Any]) -> None:
    check_engine(model(**engine), store)


@pytest.mark.parametrize(
    ("engine", "setting", "expected"),
    [
        ({"tensor_parallel_size": 3}, "engine.tensor_parallel_size = 3", "1, 2, 4, 8"),
        ({"pipeline_parallel_size": 5}, "engine.pipeline_parallel_size = 5", "at most 4"),
        ({"max_model_len": 4096}, "engine.max_model_len = 4096", "at most 2048"),
        ({"quantization": "awq"}, "engine.quantization = 'awq'", "'fp8'"),
        (
            {"tensor_parallel_size": 2, "enable_expert_parallel": True},
            "engine.enable_expert_parallel",
            "leave it out",
        ),
        ({"data_parallel_size": 2}, "engine.data_parallel_size = 2", "`replicas: 2`"),
        (
            {"speculation": {"method": "mtp", "num_speculative_tokens": 1}},
            "engine.speculation.method = 'mtp'",
            "'ngram'",
        ),
    ],
)
def test_what_the_model_cannot_do_names_the_setting_and_what_works(
    store: ModelStore, engine: dict[str, Any], setting: str, expected: str
) -> None:
    line = line_for(store, model(**engine))
    assert line.startswith(setting)
    assert expected in line


def test_every_problem_has_its_line(store: ModelStore) -> None:
    with pytest.raises(SettingsError) as caught:
        check_engine(model(tensor_parallel_size=3, max_model_len=9999), store)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("source", ["/nowhere/model", "./nowhere", "~/nowhere/model", "a/b/c"])
def test_a_path_that_is_not_there_is_named(store: ModelStore, source: str) -> None:
    line = line_for(store, model(source))
    assert line.startswith(f"source = {source!r}: no such folder; ")
    assert line.endswith("or a hub id")


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "config.json is missing"), ("{", "is not valid JSON"), ("[]", "is not a JSON object")],
)
def test_a_folder_that_holds_no_model_is_named(
    store: ModelStore, tmp_path: Path, content: str | None, expected: str
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    if content is not None:
        (folder / "config.json").write_text(content)
    assert expected in line_for(store, model(str(folder)))


@pytest.mark.parametrize("source", ["owner/elsewhere", "s3://bucket/model/v1"])
def test_a_model_that_is_not_on_this_node_is_left_to_the_engine(store: ModelStore, source: str) -> None:
    check_engine(model(source, tensor_parallel_size=3), store)


def test_a_draft_of_the_same_vocabulary_passes(store: ModelStore, tmp_path: Path) -> None:
    folder = write(tmp_path / "draft", LLAMA | {"num_hidden_layers": 1})
    check_engine(model(speculation=draft(str(folder))), store)


def test_a_draft_with_another_vocabulary_is_refused_with_the_price_of_mapping(
    store: ModelStore, tmp_path: Path
) -> None:
    folder = write(tmp_path / "draft", LLAMA | {"vocab_size": 512})
    line = line_for(store, model(speculation=draft(str(folder))))
    assert line.startswith(f"engine.speculation.model = {str(folder)!r}: ")
    assert "`speculation.use_heterogeneous_vocab: true`" in line
    assert "a step costs a mask over its logits and two look-ups more" in line
    check_engine(model(speculation=draft(str(folder), use_heterogeneous_vocab=True)), store)


def test_a_draft_whose_tokenizer_counts_otherwise_is_refused(store: ModelStore, tmp_path: Path) -> None:
    folder = write(tmp_path / "draft", LLAMA, {word: 255 - number for word, number in WORDS.items()})
    assert "other ids to the same tokens" in line_for(store, model(speculation=draft(str(folder))))


def test_tokenizers_in_another_form_are_not_compared(store: ModelStore, tmp_path: Path) -> None:
    folder = write(tmp_path / "draft", LLAMA, words=None)
    check_engine(model(speculation=draft(str(folder))), store)


def test_a_head_of_another_model_is_refused(store: ModelStore, tmp_path: Path) -> None:
    folder = write(tmp_path / "head", LLAMA | {"hidden_size": 128, "num_hidden_layers": 1}, words=None)
    speculation = {"method": "eagle", "num_speculative_tokens": 3, "model": str(folder)}
    assert "hidden states of 128 values" in line_for(store, model(speculation=speculation))


def test_a_medusa_draft_has_a_head_for_each_token(store: ModelStore, tmp_path: Path) -> None:
    folder = write(tmp_path / "medusa", {"medusa_num_heads": 3, "medusa_num_layers": 1}, words=None)
    speculation = {"method": "medusa", "num_speculative_tokens": 5, "model": str(folder)}
    assert line_for(store, model(speculation=speculation)).endswith("use at most 3")


def test_a_draft_that_is_not_there_is_named(store: ModelStore) -> None:
    line = line_for(store, model(speculation=draft("/nowhere/draft")))
    assert line.startswith("engine.speculation.model = '/nowhere/draft': no such folder")


def test_an_adapter_that_is_not_there_is_named(store: ModelStore) -> None:
    line = line_for(store, model(lora={"adapters": {"mine": "/nowhere/adapter"}}))
    assert line.startswith("engine.lora.adapters.mine = '/nowhere/adapter': no such folder")


def test_adapters_are_read(store: ModelStore, tmp_path: Path) -> None:
    small = write(tmp_path / "small", ADAPTER, None, "adapter_config.json")
    large = write(tmp_path / "large", ADAPTER | {"r": 64}, None, "adapter_config.json")
    adapters = {"small": str(small), "large": str(large), "elsewhere": "owner/adapter"}
    check_engine(model(lora={"adapters": adapters, "max_lora_rank": 64}), store)
    line = line_for(store, model(lora={"adapters": adapters}))
    assert line == "engine.lora.max_lora_rank = 16: an adapter has rank 64; use 64"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "the folder has no adapter_config.json"), ("{", "cannot be read"), ("[]", "cannot be read")],
)
def test_a_folder_that_holds_no_adapter_is_named(
    store: ModelStore, tmp_path: Path, content: str | None, expected: str
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    if content is not None:
        (folder / "adapter_config.json").write_text(content)
    line = line_for(store, model(lora={"adapters": {"mine": str(folder)}}))
    assert expected in line
    assert line.endswith("use a folder that PEFT saved, or a hub id (owner/name)")


def test_a_weight_file_that_is_cut_off_is_named(store: ModelStore) -> None:
    (store.folder("owner/target") / "model.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{")
    assert line_for(store, model()).startswith("source = 'owner/target': ")


def test_weights_in_one_file_are_left_to_the_engine(store: ModelStore, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    check_engine(model(str(path)), store)


def test_a_cpu_engine_must_find_room_on_its_node(store: ModelStore) -> None:
    machine = this_machine()
    assert machine is not None
    settings = model(accelerator="cpu", cpu_kv_cache_gib=int(machine.memory_gib) + 1)
    check_engine(settings, store)  # some other node may have the room
    with pytest.raises(SettingsError) as caught:
        check_on_node(settings, store)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"model 'm': engine.cpu_kv_cache_gib = {int(machine.memory_gib) + 1}: ")
    works = int(line.rpartition("use at most ")[2].removesuffix(" GiB"))
    check_on_node(model(accelerator="cpu", cpu_kv_cache_gib=works), store)


def test_a_cache_that_holds_no_request_of_full_length_names_the_length_that_fits(store: ModelStore) -> None:
    write(store.folder("owner/long"), LLAMA | {"max_position_embeddings": 4_000_000})
    settings = model("owner/long", accelerator="cpu", cpu_kv_cache_gib=1)
    with pytest.raises(
        SettingsError, match=r"engine\.max_model_len = None: .*; use at most \d+, or a larger"
    ):
        check_on_node(settings, store)


def test_the_memory_of_this_machine_is_known() -> None:
    machine = this_machine()
    assert machine is not None
    assert 0.5 < machine.memory_gib < 2**40 / GIB


def test_data_parallel_ranks_need_gpus() -> None:
    with pytest.raises(SettingsError, match=r"engine\.data_parallel_size = 2: .*; 1, or `accelerator: gpu`"):
        check_served(model(accelerator="cpu", data_parallel_size=2))


def test_pipeline_stages_on_a_cpu_are_refused_where_vllm_fails() -> None:
    stages = {"accelerator": "cpu", "pipeline_parallel_size": 2}
    with pytest.raises(SettingsError, match=r"pipeline_parallel_size = 2: .*; 1, and a larger `tensor_par"):
        check_served(model(**stages, enforce_eager=True))
    check_served(model(**stages))
    check_served(model(pipeline_parallel_size=2, enforce_eager=True))


def test_data_parallel_engines_are_served_but_not_autoscaled() -> None:
    ranks = EngineSettings(data_parallel_size=2)
    check_served(ModelSettings(id="m", source="owner/moe", engine=ranks, replicas=3))
    scaled = ModelSettings(id="m", source="owner/moe", engine=ranks, replicas=AutoscalingSettings(max=3))
    with pytest.raises(SettingsError, match=r"replicas = 'autoscaled': .*; a number of engines"):
        check_served(scaled)


@pytest.mark.parametrize(
    "engine", [{"lora": {"adapters": {"a": "owner/a"}}}, {"scheduling_policy": "priority"}]
)
def test_what_the_gateway_serves_passes(engine: dict[str, Any]) -> None:
    check_served(model(**engine))


OFFLOAD = {"size_gib": 16.0}
LMCACHE = {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both"}
NATIVE = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}


def transferring(*connectors: dict[str, Any]) -> dict[str, Any]:
    """vLLM's own option; several stand in its ``MultiConnector``."""
    several = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [*connectors]},
    }
    return {"options": {"kv_transfer_config": connectors[0] if len(connectors) == 1 else several}}


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ({"kv_offload": OFFLOAD | {"backend": "lmcache"}}, "an LMCache server beside the engine"),
        (
            {"disaggregation": {"prefill_replicas": 1, "connector": "lmcache"}},
            "engine.disaggregation.connector = 'lmcache'",
        ),
        (transferring(LMCACHE), r"engine.options.kv_transfer_config = 'LMCacheMPConnector': it needs an LMC"),
        (transferring(NATIVE, LMCACHE), r"engine.options.kv_transfer_config = 'LMCacheMPConnector'"),
        ({"kv_offload": OFFLOAD, "tensor_parallel_size": 4}, "use 'strict_pack' with `kv_offload`"),
    ],
)
def test_an_offload_that_nothing_serves_or_that_would_overwrite_itself_is_refused(
    engine: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        check_served(model(**engine))


@pytest.mark.parametrize(
    "engine", [{}, {"tensor_parallel_size": 4, "placement": "strict_pack"}, {"placement": "spread"}]
)
def test_an_offload_on_one_node_is_served(engine: dict[str, Any]) -> None:
    check_served(model(kv_offload=OFFLOAD, **engine))


IN_PROCESS = LMCACHE | {"kv_connector": "LMCacheConnectorV1"}


@pytest.mark.parametrize(
    "connectors", [[NATIVE], [NATIVE, NATIVE], [IN_PROCESS]], ids=["one", "several", "in the engine"]
)
def test_vllms_own_connectors_may_be_set_by_hand(connectors: list[dict[str, Any]]) -> None:
    check_served(model(**transferring(*connectors)))


@pytest.mark.parametrize("numbers", [[0, 1], [1, 2], [3, 2], [4, 5, 6, 7], [2, 3, 4, 5]])
def test_devices_that_follow_each_other_have_a_part_of_the_offloaded_cache_each(numbers: list[int]) -> None:
    check_devices(model(kv_offload=OFFLOAD), numbers)


@pytest.mark.parametrize("numbers", [[0, 2], [5, 3], [0, 1, 2, 4]])
def test_devices_whose_parts_of_the_offloaded_cache_would_be_one_are_refused(numbers: list[int]) -> None:
    shown = ", ".join(map(str, sorted(numbers)))
    with pytest.raises(SettingsError, match=f"{len(numbers)} devices with the numbers {shown}'?: "):
        check_devices(model(kv_offload=OFFLOAD), numbers)


def test_what_is_offloaded_must_fit_the_nodes_shared_memory(store: ModelStore, tmp_path: Path) -> None:
    check_on_node(model(kv_offload={"size_gib": 0.001}), store, shared_memory=tmp_path)
    with pytest.raises(SettingsError, match=r"engine.kv_offload.size_gib = 1000000.0: .*docker --shm-size"):
        check_on_node(model(kv_offload={"size_gib": 1e6}), store, shared_memory=tmp_path)
