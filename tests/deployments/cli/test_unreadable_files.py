"""A directory where a command expects a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.main import main
from serve_app.errors import SettingsError
from serve_app.request.auth import load_keys
from serve_app.settings import KeySettings

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "words",
    [
        ["plan"],
        ["check"],
        ["doctor"],
        ["serve"],
        ["manifest"],
        ["restore", "--config", "config/local.yaml"],
        ["keys", "list", "--key-file"],
        ["connect", "claude", "--key-file"],
        ["eval", "--candidate", "a", "--replay"],
        ["audit", "verify"],
        ["plan", "config/local.yaml", "--offline", "--trace"],
    ],
    ids=" ".join,
)
def test_a_directory_is_called_one(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main([*words, str(tmp_path)]) != 0
    said = capsys.readouterr().err
    assert "it is a directory; expected a file" in said
    assert "Errno" not in said


def test_so_is_one_where_the_file_of_keys_should_be(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as said:
        load_keys(KeySettings(keys_file=str(tmp_path)), {})
    assert f"auth.keys_file = '{tmp_path}': it is a directory; expected a file; " in str(said.value)
