"""Every config file that the project ships builds the settings of its graph."""

from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from serve_app.model_store import ModelStore
from serve_app.settings import AutoscalingSettings, Settings, load_file

CONFIGS = sorted((Path(__file__).parents[3] / "config").glob("*.yaml"))


WITH_ENGINES = [path for path in CONFIGS if load_file(path)[0].models[0].engine is not None]


def shipped(name: str) -> Settings:
    (settings,) = load_file(next(path for path in CONFIGS if path.name == name))
    return settings


def test_the_four_shapes_are_shipped() -> None:
    names = {"local.yaml", "gpu-8b.yaml", "gpu-70b-tp4.yaml", "upstreams.yaml"}
    assert {path.name for path in CONFIGS} >= names
    assert {path.name for path in WITH_ENGINES} >= names - {"upstreams.yaml"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_is_valid_for_serve_and_for_promptly(path: Path) -> None:
    schema = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))
    assert schema.applications[0].import_path == "serve_app.app:build"
    (settings,) = load_file(path)
    assert settings.cache is not None


@pytest.mark.parametrize("path", WITH_ENGINES, ids=lambda path: path.name)
def test_a_shipped_engine_speculates_unless_it_is_for_throughput(path: Path) -> None:
    speculation = shipped(path.name).models[0].managed_engine.speculation
    assert (speculation is None) == (path.name == "gpu-8x.yaml")


@pytest.mark.parametrize("path", WITH_ENGINES, ids=lambda path: path.name)
def test_a_shipped_config_gives_an_engine_configuration_that_ray_and_vllm_accept(
    path: Path, tmp_path: Path
) -> None:
    from deployments.engine.deployment import llm_config
    from deployments.graph import engine_options

    (settings,) = load_file(path)
    for model in settings.models:
        config = llm_config(model, ModelStore(tmp_path))
        engine = config.get_engine_config()  # refuses an argument that vLLM does not have
        assert engine.num_devices == model.managed_engine.num_devices
        assert engine.get_initialization_kwargs()["served_model_name"] == [model.id]
        assert engine_options(model)["graceful_shutdown_timeout_s"] > model.drain_timeout_s


def test_the_70b_config_is_tensor_parallel_with_a_head_and_scales() -> None:
    model = shipped("gpu-70b-tp4.yaml").models[0]
    engine = model.managed_engine
    assert engine.tensor_parallel_size == 4
    assert engine.kv_cache_dtype == "fp8"
    assert engine.speculation is not None
    assert engine.speculation.method == "eagle3"
    assert isinstance(model.replicas, AutoscalingSettings)
    assert (model.replicas.min, model.replicas.max) == (1, 4)


def test_on_two_cores_nothing_races() -> None:
    cache = shipped("local.yaml").cache
    assert cache is not None
    assert not cache.race


def test_the_upstreams_config_has_a_vendor_that_helps_out() -> None:
    (model,) = shipped("upstreams.yaml").models
    assert model.engine is None
    vllm, vendor = model.upstreams
    assert (vllm.kind, vllm.health_target, vllm.priority) == ("vllm", "/health", 0)
    assert (vendor.kind, vendor.health_target, vendor.priority) == ("openai", "/v1/models", 1)
    assert vendor.key_env is not None
