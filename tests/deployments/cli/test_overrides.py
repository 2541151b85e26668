"""Another value in the first model, for one plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.overrides import overridden
from serve_app.errors import SettingsError
from serve_app.settings import AutoscalingSettings, Settings, load_file

CONFIGS = Path(__file__).parents[3] / "config"


@pytest.fixture
def settings() -> Settings:
    return load_file(CONFIGS / "gpu-70b-tp4.yaml")[0]


def test_nothing_set_is_nothing_changed(settings: Settings) -> None:
    assert overridden(settings, []) == settings


def test_values_are_set_below_the_first_model(settings: Settings) -> None:
    assignments = ["source=owner/other", "engine.tensor_parallel_size=2", "engine.kv_offload.size_gib=8.5"]
    model = overridden(settings, assignments).models[0]
    assert model.source == "owner/other"
    assert model.managed_engine.tensor_parallel_size == 2
    assert model.managed_engine.kv_offload is not None
    assert model.managed_engine.kv_offload.size_gib == 8.5
    assert model.managed_engine.speculation == settings.models[0].managed_engine.speculation


def test_null_takes_a_key_away(settings: Settings) -> None:
    model = overridden(settings, ["engine.speculation=null", "replicas=2"]).models[0]
    assert model.managed_engine.speculation is None
    assert model.replicas == 2
    assert isinstance(settings.models[0].replicas, AutoscalingSettings)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("engine", "expected key=value"),
        ("=1", "expected key=value"),
        ("engine.dtype=[", "not a YAML value"),
        ("engine.tensor_parallel_size=0", "tensor_parallel_size"),
        ("engine.tensor_paralel_size=2", "unknown key"),
    ],
)
def test_what_cannot_be_set_is_said(settings: Settings, assignment: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        overridden(settings, [assignment])
