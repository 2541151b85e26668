"""What ``scripts/quantize.py`` refuses before anything is loaded: one line, the argument and what works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.quantized_speed import last_reason, measure_speed
from quantization.environment import environment, install, interpreter
from quantization.plan import checked, out_folder
from quantization.schemes import (
    AWQ,
    FP8,
    INT8,
    SCHEMES,
    QuantizeError,
    group_size,
    quantized_source,
    scheme_named,
)
from quantize import arguments, main

from serve_app.model_store import ModelStore


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """A node with one prepared model, ``owner/small``."""
    store = ModelStore(tmp_path / "cache")
    write_model(store.folder("owner/small"))
    return store


def write_model(folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def refusal(store: ModelStore, *words: str) -> str:
    with pytest.raises(QuantizeError) as caught:
        checked(arguments(list(words)), store)
    (line,) = str(caught.value).splitlines()
    return line


def test_a_prepared_model_becomes_a_neighbour_that_settings_can_name(store: ModelStore) -> None:
    plan = checked(arguments(["owner/small", "--scheme", "int8"]), store)
    assert plan.model == store.folder("owner/small")
    assert plan.out == store.folder("owner/small-int8")
    assert len(plan.samples.items) == 256


def test_a_folder_becomes_its_neighbour(store: ModelStore, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine")
    assert checked(arguments([f"{folder}/", "--scheme", "awq"]), store).out == tmp_path / "mine-awq"


def test_a_scheme_that_needs_no_samples_has_none(store: ModelStore) -> None:
    assert checked(arguments(["owner/small", "--scheme", "fp8"]), store).samples.items == ()


def test_an_unknown_scheme_lists_the_known_ones(store: ModelStore) -> None:
    line = refusal(store, "owner/small", "--scheme", "int3")
    assert line.startswith("--scheme int3: not known; use one of: ")
    assert all(name in line for name in SCHEMES)


def test_a_missing_model_is_named(store: ModelStore) -> None:
    assert refusal(store, "/nowhere/model").startswith("/nowhere/model: no such folder")
    assert refusal(store).startswith("name a model")


def test_a_folder_without_a_model_is_named(store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "config.json is missing" in refusal(store, str(tmp_path / "empty"))
    (write_model(tmp_path / "hollow") / "model.safetensors").unlink()
    assert "no safetensors files" in refusal(store, str(tmp_path / "hollow"))


def test_a_model_that_is_quantised_already_is_refused(store: ModelStore, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "small", quantization_config={"quant_method": "gptq"})
    assert "is quantised already (gptq)" in refusal(store, str(folder))


def test_an_output_that_exists_is_left_alone(store: ModelStore, tmp_path: Path) -> None:
    out = write_model(tmp_path / "out")
    assert refusal(store, "owner/small", "--out", str(out)) == (
        f"{out} exists: give another --out, or remove it"
    )
    write_model(store.folder("owner/small-int8"))
    with pytest.raises(QuantizeError, match="exists"):
        out_folder(None, "owner/small", INT8, store)


@pytest.mark.parametrize("count", ["127", "513", "0"])
def test_too_few_or_too_many_samples_name_the_bounds(store: ModelStore, count: str) -> None:
    assert refusal(store, "owner/small", "--samples", count) == f"--samples {count}: expected 128 to 512"


@pytest.mark.parametrize(
    ("name", "value", "least"), [("sample-tokens", "3", 16), ("answer-tokens", "0", 16), ("rounds", "-1", 0)]
)
def test_numbers_out_of_range_name_the_least(store: ModelStore, name: str, value: str, least: int) -> None:
    line = refusal(store, "owner/small", f"--{name}={value}")
    assert line == f"--{name} {value}: expected at least {least}"


def test_a_missing_environment_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match=r"python scripts/quantize\.py --install"):
        interpreter(tmp_path / "venv")


def test_an_environment_that_was_not_finished_counts_as_missing(tmp_path: Path) -> None:
    program = tmp_path / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.touch()
    with pytest.raises(QuantizeError, match="is not installed"):
        interpreter(tmp_path / "venv")
    (tmp_path / "venv" / "installed").touch()
    assert install(tmp_path / "venv") == program


def test_the_worker_sees_none_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert "PYTHONPATH" not in environment()
    assert environment()["HF_HUB_OFFLINE"] == "1"


def test_a_refusal_is_one_line_and_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere/model", "--scheme", "int8"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1


def test_schemes_are_found_by_name_in_any_case() -> None:
    assert scheme_named("INT8") is INT8
    assert scheme_named("fp8") is FP8
    assert quantized_source("owner/model/", AWQ) == "owner/model-awq"


@pytest.mark.parametrize(("widths", "size"), [({256, 512}, 128), ({576, 1536}, 64), ({96}, 32)])
def test_groups_of_weights_divide_every_layer(widths: set[int], size: int) -> None:
    assert group_size(widths) == size


def test_layers_that_no_group_divides_are_refused() -> None:
    with pytest.raises(QuantizeError, match=r"divides every layer's inputs \(100, 256\)"):
        group_size({100, 256})


def test_speed_that_nobody_asked_for_is_not_measured(tmp_path: Path) -> None:
    assert measure_speed(tmp_path, tmp_path, 0) == (None, "--rounds 0")


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("INFO start\nValueError: no kernel\nTraceback\nINFO end", "ValueError: no kernel"),
        ("INFO start\nended by itself", "ended by itself"),
        ("", "no reason given"),
    ],
)
def test_why_an_engine_did_not_start_is_one_line(log: str, reason: str) -> None:
    assert last_reason(log) == reason
