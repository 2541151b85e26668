"""`promptly init` writes a file that the checks accept and that the plan says fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deployments.cli.init import InitError, Target, for_gpus, plan_of, target_of
from deployments.cli.main import main
from deployments.launcher.config import read_config
from deployments.platform.shipped import shipped_folder
from serve_app.machine import Gpu
from serve_app.planning import DEVICES, ModelPlan
from serve_app.settings import Settings, load_file

NVIDIA = [device.name for device in DEVICES if not device.is_cpu and device.name != "MI300X"]
L4 = Gpu("NVIDIA L4", "580.65.06", 8.9, 22.5)
NEWER = Gpu("NVIDIA RTX 9990", "600.1", 13.0, 30.0)


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def written(file: str) -> Settings:
    (settings,) = load_file(Path(file))
    return settings


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("device", NVIDIA)
def test_the_config_for_gpus_is_valid_fits_and_uses_them(device: str, gpus: int) -> None:
    target = target_of(device, gpus, ())
    text, choice = for_gpus(target, "promptly.yaml")
    planned = plan_of(text, target.hardware)
    assert isinstance(planned, ModelPlan), planned
    assert choice.gpus * choice.replicas == gpus
    assert f"for {target.about}" in text
    assert text.count("# What the plan expects") == 1


@pytest.mark.parametrize(
    ("device", "gpus", "model"),
    [
        ("T4", 1, "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("L4", 1, "Qwen/Qwen3-8B"),
        ("H100", 1, "Qwen/Qwen3-32B"),
        ("H100", 8, "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"),
    ],
)
def test_more_room_gets_a_larger_model(
    device: str, gpus: int, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "a.yaml", "--device", device, "--gpus", str(gpus)]) == 0
    assert written("a.yaml").models[0].source == model
    said = capsys.readouterr().out
    assert model in said
    assert "promptly serve a.yaml" in said
    assert main(["plan", "a.yaml", "--device", device, "--gpus", str(gpus), "--offline"]) == 0
    assert main(["check", "a.yaml"]) == 0


def test_a_machine_without_gpus_gets_what_the_shipped_config_serves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The shipped config is started by the tests end to end, so this one starts, too."""
    assert main(["init", "--device", "cpu"]) == 0
    text = Path("promptly.yaml").read_text(encoding="utf-8")
    shipped = shipped_folder() / "local.yaml"
    assert yaml.safe_load(text) == yaml.safe_load(shipped.read_text(encoding="utf-8"))
    assert text.startswith("# Made by `promptly init` for CPUs")
    assert "# What the plan expects" in text
    assert main(["check", "promptly.yaml"]) == 0
    assert read_config(Path("promptly.yaml")).url == "http://127.0.0.1:8000"


def test_an_existing_file_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("promptly.yaml").write_text("mine", encoding="utf-8")
    assert main(["init", "--device", "cpu"]) == 1
    assert "promptly.yaml exists" in capsys.readouterr().err
    assert Path("promptly.yaml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "H9000"], "--device H9000: expected one of: H100"),
        (["--device", "L4", "--gpus", "0"], "--gpus 0: expected 1 or more"),
        (["--example", "nothing"], "--example nothing: expected one of: gpu-70b-tp4"),
        (["nowhere/a.yaml", "--device", "cpu"], "nowhere/a.yaml"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_message(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["init", *arguments]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_example_is_a_copy() -> None:
    assert main(["init", "a.yaml", "--example", "gpu-8b"]) == 0
    assert Path("a.yaml").read_bytes() == (shipped_folder() / "gpu-8b.yaml").read_bytes()


def test_the_gpus_that_the_driver_reports_are_used() -> None:
    target = target_of(None, None, (L4, L4))
    assert (target.gpus, target.device.name, target.memory_gib) == (2, "L4", None)


def test_a_gpu_that_the_plan_does_not_know_is_planned_with_its_memory() -> None:
    target = target_of(None, None, (NEWER,))
    assert (target.device.name, target.memory_gib) == ("L4", 30.0)
    assert "planned as an L4" in target.about
    assert for_gpus(target, "a.yaml")[1].id == "qwen3-8b"


def test_unequal_gpus_are_planned_as_the_smallest() -> None:
    target = target_of(None, None, (NEWER, L4))
    assert (target.gpus, target.device.name) == (2, "L4")


def test_gpus_without_a_device_need_a_machine_with_some() -> None:
    with pytest.raises(InitError, match="this machine has no GPU"):
        target_of(None, 2, ())


def test_a_gpu_that_holds_no_model_is_said_so() -> None:
    small = target_of("T4", 1, ())
    with pytest.raises(InitError, match="no model that `promptly init` knows fits"):
        for_gpus(Target(1, small.device, 0.2, "a tiny GPU"), "a.yaml")
