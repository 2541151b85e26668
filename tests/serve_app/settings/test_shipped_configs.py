"""Every config file that the project ships builds the settings of its graph."""

from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from serve_app.model_store import ModelStore
from serve_app.settings import AutoscalingSettings, load_file

CONFIGS = sorted((Path(__file__).parents[3] / "config").glob("*.yaml"))


def test_the_three_shapes_are_shipped() -> None:
    assert {path.name for path in CONFIGS} >= {"local.yaml", "gpu-8b.yaml", "gpu-70b-tp4.yaml"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_is_valid_for_serve_and_for_promptly(path: Path) -> None:
    schema = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))
    assert schema.applications[0].import_path == "serve_app.app:build"
    (settings,) = load_file(path)
    assert settings.cache is not None
    assert settings.models[0].engine.speculation is not None


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_gives_an_engine_configuration_that_ray_and_vllm_accept(
    path: Path, tmp_path: Path
) -> None:
    from deployments.engine import llm_config
    from serve_app.app import engine_options

    (settings,) = load_file(path)
    for model in settings.models:
        config = llm_config(model, ModelStore(tmp_path))
        engine = config.get_engine_config()  # refuses an argument that vLLM does not have
        assert engine.num_devices == model.engine.num_devices
        assert engine.get_initialization_kwargs()["served_model_name"] == [model.id]
        assert engine_options(model)["graceful_shutdown_timeout_s"] > model.drain_timeout_s


def test_the_70b_config_is_tensor_parallel_with_a_draft_model_and_scales() -> None:
    (settings,) = load_file(next(path for path in CONFIGS if path.name == "gpu-70b-tp4.yaml"))
    model = settings.models[0]
    assert model.engine.tensor_parallel_size == 4
    assert model.engine.kv_cache_dtype == "fp8"
    assert model.engine.speculation is not None
    assert model.engine.speculation.method == "draft_model"
    assert isinstance(model.replicas, AutoscalingSettings)
    assert (model.replicas.min, model.replicas.max) == (1, 4)
