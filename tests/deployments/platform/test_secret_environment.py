"""Keys in a file instead of the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.platform.secret_environment import FILE, with_secrets
from serve_app.errors import SettingsError

SECRET = "sk-secret"


def written(path: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    """An environment that names a file with this text."""
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return {FILE: str(path), "KEY": "from the environment", "OTHER": "o"}


def test_what_the_file_holds_goes_before_the_environment(tmp_path: Path) -> None:
    found = with_secrets(written(tmp_path / "s.json", json.dumps({"KEY": SECRET})))
    assert (found["KEY"], found["OTHER"]) == (SECRET, "o")


def test_without_a_file_the_environment_is_all_there_is() -> None:
    assert with_secrets({"KEY": "k"}) == {"KEY": "k"}


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (json.dumps({"KEY": SECRET}), 0o640, "others may read it"),
        (json.dumps({"KEY": SECRET}), 0o604, "mode 604"),
        (f"KEY={SECRET}", 0o600, "expected a JSON object"),
        (json.dumps([SECRET]), 0o600, "expected a JSON object"),
        (json.dumps({"KEY": {"inner": SECRET}}), 0o600, "values are strings"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_not_shown(
    tmp_path: Path, text: str, mode: int, message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        with_secrets(written(tmp_path / "s.json", text, mode))
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=str(tmp_path / "none")):
        with_secrets({FILE: str(tmp_path / "none")})
