"""``python -m serve_app.settings FILE`` says what is wrong with a file before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.settings.__main__ import main


def config(folder: Path, accelerator: str) -> str:
    return config_of(folder, {"id": "m", "source": "owner/m", "engine": {"accelerator": accelerator}})


def config_of(folder: Path, model: dict[str, Any]) -> str:
    args = {"models": [model]}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"http_options": {"host": "127.0.0.1"}, "applications": [{"args": args}]}))
    return str(path)


def test_a_right_file_passes_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([config(tmp_path, "cpu")]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_check_needs_no_key_of_an_upstream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VENDOR_KEY", raising=False)
    vendor = {"name": "vendor", "url": "https://vendor.example/v1", "key_env": "VENDOR_KEY"}
    assert main([config_of(tmp_path, {"id": "m", "upstreams": [vendor]})]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_wrong_file_fails_with_the_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, "abacus")
    assert main([path]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"{path}: models[0].engine.accelerator = 'abacus'")


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_anything_but_one_file_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "usage:" in capsys.readouterr().err
