"""``quantize.py --suite``: what is refused before anything is loaded, and what is only judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import quantize
from benchmarks import quantized_verdict
from benchmarks.engines import scripted_process
from benchmarks.peers.endpoint import Endpoint, PeerError
from quantization.plan import quantised_folder
from quantization.schemes import INT8_ROUNDED, QuantizeError
from quantize import arguments, main

from serve_app.model_store import ModelStore

SUITE = """
name: tiny
cases:
  - {id: a, prompt: Hello, assertions: [{scorer: regex, pattern: .}]}
  - {id: b, prompt: Good-bye, assertions: [{scorer: regex, pattern: .}]}
"""


def model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_a_wrong_suite_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("cases:\n  - {id: a, promt: Hello}\n")
    assert main([str(model(tmp_path / "m")), "--suite", str(suite)]) == 1
    assert "suite.yaml" in capsys.readouterr().err


def test_a_result_that_is_there_is_found_by_its_scheme(tmp_path: Path) -> None:
    source, store = model(tmp_path / "m"), ModelStore(tmp_path)
    options = arguments([str(source), "--scheme", "int8-rounded"])
    assert quantised_folder(options, store) is None
    made = model(tmp_path / f"m-{INT8_ROUNDED.name}")
    assert quantised_folder(options, store) == made
    with pytest.raises(QuantizeError, match="name a model"):
        quantised_folder(arguments([]), store)


def test_both_models_answer_the_suite_and_the_report_lies_beside_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripted engines instead of vLLM."""

    @contextmanager
    def scripted(folder: Path, arguments: object) -> Iterator[Endpoint]:
        assert (folder / "config.json").is_file()
        with scripted_process(quantized_verdict.MODEL, tokens=3, itl_ms=1.0) as engine:
            yield engine.endpoint

    monkeypatch.setattr(quantized_verdict, "engine_server", scripted)
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE)
    made = (model(tmp_path / "m"), model(tmp_path / "m-int8"))[1]
    assert main([str(tmp_path / "m"), "--suite", str(suite)]) == 3  # two cases decide nothing
    assert "tiny: m → m-int8" in capsys.readouterr().out
    assert {path.name for path in made.glob("evaluation.*")} == set(quantized_verdict.FILES)


def test_a_model_that_vllm_cannot_serve_gives_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise PeerError("Traceback\nValueError: no kernel for this type")

    monkeypatch.setattr(quantize, "judged", fails)
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE)
    model(tmp_path / "m")
    model(tmp_path / "m-int8")
    assert main([str(tmp_path / "m"), "--suite", str(suite)]) == 1
    assert capsys.readouterr().err == (
        "vLLM could not serve the models here: ValueError: no kernel for this type\n"
    )
