"""A fingerprint names the weights and the way they are run, not how fast or where."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.settings import EngineSettings, ModelSettings, UpstreamSettings
from serve_app.settings.fingerprint import WITHOUT_INFLUENCE, fingerprint

SHAPING: dict[str, Any] = {
    "accelerator": "cpu",
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 2,
    "dtype": "bfloat16",
    "max_model_len": 2048,
    "max_num_batched_tokens": 512,
    "quantization": "awq",
    "kv_cache_dtype": "fp8",
    "enforce_eager": True,
    "speculation": {"method": "ngram", "num_speculative_tokens": 3},
    "options": {"seed": 3},
    "data_parallel_size": 2,
    "enable_chunked_prefill": False,
    "long_prefill_token_threshold": 256,
    "cudagraph_mode": "full",
    "optimization_level": 1,
    "performance_mode": "interactivity",
    "structured_outputs_backend": "xgrammar",
    "reasoning": "off",
}
"""Engine settings that may change the text of an answer, with another value than the default."""

SPEED: dict[str, Any] = {
    "accelerator_type": "H100",
    "max_num_seqs": 64,
    "gpu_memory_utilization": 0.5,
    "enable_prefix_caching": False,
    "allowed_media_domains": ["images.example.com"],
    "num_cpus": 4.0,
    "warm_up": False,
    "warm_up_budget_s": 5.0,
    "env": {"OMP_NUM_THREADS": "2"},
    "placement": "spread",
    "nodes": "own_nodes",
    "scheduling_policy": "priority",
    "kv_offload": {"size_gib": 4.0},
    "disaggregation": {"prefill_replicas": 1},
    "enable_sleep_mode": True,
    "lora": {"adapters": {"a": "b"}},
    "tools": "off",
}


def model(engine: dict[str, Any] | None = None, **fields: Any) -> ModelSettings:
    known: dict[str, Any] = {"id": "m", "source": "owner/m"}
    return ModelSettings(**(known | fields), engine=EngineSettings(**(engine or {})))


def test_every_engine_setting_is_judged() -> None:
    known = SHAPING.keys() | SPEED.keys() | {"cpu_kv_cache_gib", "enable_expert_parallel"}
    assert known == EngineSettings.model_fields.keys()
    assert SPEED.keys() | {"cpu_kv_cache_gib"} == WITHOUT_INFLUENCE


@pytest.mark.parametrize("name", SHAPING)
def test_a_setting_that_shapes_the_text_changes_it(name: str) -> None:
    assert fingerprint(model({name: SHAPING[name]})) != fingerprint(model())


@pytest.mark.parametrize("name", SPEED)
def test_a_setting_that_leaves_the_text_alone_does_not_change_it(name: str) -> None:
    assert fingerprint(model({name: SPEED[name]})) == fingerprint(model())


def test_spreading_experts_changes_it() -> None:
    parallel = {"tensor_parallel_size": 2}
    assert fingerprint(model(parallel | {"enable_expert_parallel": True})) != fingerprint(model(parallel))


def test_the_size_of_a_cpu_engines_kv_cache_does_not_change_it() -> None:
    cpu = {"accelerator": "cpu"}
    assert fingerprint(model(cpu | {"cpu_kv_cache_gib": 4})) == fingerprint(model(cpu))


@pytest.mark.parametrize("changed", [{"source": "owner/n"}, {"revision": "main"}, {"revision": "v2"}])
def test_other_weights_change_it(changed: dict[str, Any]) -> None:
    assert fingerprint(model(**changed)) != fingerprint(model())


@pytest.mark.parametrize(
    "changed", [{"replicas": 3}, {"drain_timeout_s": 1.0}, {"cache": False}, {"id": "n"}]
)
def test_how_a_model_is_offered_does_not_change_it(changed: dict[str, Any]) -> None:
    assert fingerprint(model(**changed)) == fingerprint(model())


def test_all_changes_differ_from_each_other() -> None:
    models = [model({name: value}) for name, value in SHAPING.items()]
    models += [model(revision="v1"), model(revision="v2"), model(source="owner/n"), model()]
    assert len({fingerprint(each) for each in models}) == len(models)


def test_the_order_of_options_does_not_matter() -> None:
    one, other = {"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}
    assert fingerprint(model({"options": one})) == fingerprint(model({"options": other}))


HERE: dict[str, Any] = {"name": "a", "url": "http://10.0.0.1:8000/v1"}
THERE: dict[str, Any] = {"name": "b", "url": "https://vendor.example/v1", "model": "theirs"}


def upstreams(*each: dict[str, Any], **fields: Any) -> str:
    """The fingerprint of a model that only external upstreams serve."""
    return fingerprint(ModelSettings(**({"id": "m"} | fields), upstreams=each))


def test_a_model_without_an_engine_has_one() -> None:
    assert len(upstreams(HERE)) == 16
    assert upstreams(HERE) == upstreams(dict(HERE))


@pytest.mark.parametrize(
    "changed", [{"url": "http://10.0.0.2:8000/v1"}, {"url": "http://10.0.0.1:8000/v2"}, {"model": "other"}]
)
def test_another_server_or_another_model_there_changes_it(changed: dict[str, Any]) -> None:
    assert upstreams(HERE | changed) != upstreams(HERE)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "c"},
        {"kind": "vllm"},
        {"key_env": "KEY"},
        {"priority": 3},
        {"weight": 2.0},
        {"max_requests": 1},
        {"health_path": "/up"},
        {"health_period_s": 1.0},
        {"paths": ["/v1/embeddings"]},
        {"idle_connection_s": 1.0},
        {"cache_salt": True},
        {"health_timeout_s": 1.0},
    ],
)
def test_how_a_server_is_used_does_not_change_it(changed: dict[str, Any]) -> None:
    assert upstreams(HERE | changed) == upstreams(HERE)


def test_every_upstream_setting_is_judged() -> None:
    used = {"name", "kind", "key_env", "priority", "weight", "max_requests", "health_path", "health_period_s"}
    assert UpstreamSettings.model_fields.keys() == used | {
        "paths",
        "cache_salt",
        "idle_connection_s",
        "health_timeout_s",
        "url",
        "model",
    }


def test_a_server_more_or_less_changes_it() -> None:
    assert len({upstreams(HERE), upstreams(THERE), upstreams(HERE, THERE)}) == 3


def test_the_order_of_servers_does_not_matter() -> None:
    assert upstreams(HERE, THERE) == upstreams(THERE, HERE)


def test_a_servers_own_name_for_the_model_is_the_models_unless_it_is_given() -> None:
    assert upstreams(HERE | {"model": "m"}) == upstreams(HERE)


def test_servers_beside_an_engine_change_it() -> None:
    assert len({fingerprint(model()), fingerprint(model(upstreams=[HERE])), upstreams(HERE)}) == 3


def test_it_is_short_and_hexadecimal() -> None:
    assert len(fingerprint(model())) == 16
    int(fingerprint(model()), 16)
