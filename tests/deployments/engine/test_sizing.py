"""The plan of running settings: what `promptly plan` prints, as values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support import model_configs as configs

from deployments.cli.main import main
from deployments.engine.sizing import running_plan
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore
from serve_app.planning.question import parse_question
from serve_app.settings import parse_args

SOURCE = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    monkeypatch.setenv("PROMPTLY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    store = ModelStore(tmp_path / "cache")
    configs.write_model(store.folder(SOURCE), configs.SOURCES[SOURCE])
    return store


def planned(*models: dict[str, Any], **query: str) -> dict[str, Any]:
    return running_plan(parse_args({"models": list(models)}, source="test"), parse_question(query))


def managed(source: str = SOURCE, **engine: Any) -> dict[str, Any]:
    return {"id": "m", "source": source, "engine": {"max_model_len": 16384, **engine}}


def test_it_has_the_report_of_the_command_and_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model,) = planned(managed(accelerator_type="H100"), rate="2", price="2.5")["models"]
    assert (model["known"], model["device"], model["context"], model["problems"]) == (True, "H100", 16384, [])
    assert model["memory"]["parts"]["weights"] == pytest.approx(15.0, abs=0.2)
    assert sum(model["memory"]["parts"].values()) + model["memory"]["kv_cache"] <= model["memory"]["usable"]
    assert model["requests_at_once"] == pytest.approx(model["kv_tokens"] / 16384, rel=0.01)
    assert 0 < model["speed"]["token_ms"] < model["speed"]["token_ms_of_32"]
    path = tmp_path / "app.yaml"
    document = {
        "http_options": {"host": "127.0.0.1"},
        "applications": [
            {
                "import_path": "serve_app.app:build",
                "args": {"models": [managed(accelerator_type="H100")]},
            }
        ],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert main(["plan", str(path), "--rate", "2", "--price", "2.5", "--offline"]) == 0
    lines = [*model["report"], *(f"  {line}" for line in model["parsers"])]
    assert capsys.readouterr().out.strip().splitlines() == lines


def test_a_device_may_be_named_for_models_on_gpus() -> None:
    cpu = {"id": "c", "source": SOURCE, "engine": {"accelerator": "cpu", "max_model_len": 512}}
    gpu, on_cpu = planned(managed(), cpu, device="L4")["models"]
    assert gpu["device"] == "L4"
    assert on_cpu["device"] not in {"L4", None}
    (without,) = planned(managed())["models"]
    assert (without["device"], without["speed"], without["memory"]["usable"]) == (None, None, None)
    with pytest.raises(SettingsError, match="--device B9: expected one of"):
        planned(managed(), device="B9")


def test_what_would_not_work_is_named() -> None:
    (model,) = planned(managed(accelerator_type="L4", tensor_parallel_size=3))["models"]
    assert model["problems"][0]["setting"] == "models[0].engine.tensor_parallel_size"


def test_a_model_whose_facts_are_not_here_is_said_to_be_unknown() -> None:
    known, unknown = planned(managed(), {"id": "u", "source": "nobody/knows-this", "engine": {}})["models"]
    assert known["known"]
    assert (unknown["known"], unknown["id"], unknown["problems"]) == (False, "u", [])
    assert "has no config.json of nobody/knows-this" in unknown["why"]
    assert "`promptly plan`" in unknown["why"]


def test_a_folder_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    (model,) = planned(managed(str(tmp_path / "gone")))["models"]
    assert not model["known"]
    assert model["problems"][0]["setting"] == "models[0].source"


def test_models_of_upstreams_are_named_as_others() -> None:
    upstream = {"id": "far", "upstreams": [{"name": "x", "url": "http://x.example/v1"}]}
    plan = planned(upstream)
    assert plan == {"models": [], "others": ["far"]}
