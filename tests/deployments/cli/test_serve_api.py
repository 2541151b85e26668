"""Where the command `promptly apply` finds Ray's dashboard, and its token."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.serve_api import ApiError, dashboard_of

TOKEN = "0" * 64


def test_a_cluster_that_was_started_by_hand_has_its_token_where_ray_keeps_it(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(f"{TOKEN}\n")
    home = {"HOME": str(tmp_path)}
    assert dashboard_of(home | {"RAY_AUTH_MODE": "token"}) == ("http://127.0.0.1:8265", TOKEN)
    assert dashboard_of(home) == ("http://127.0.0.1:8265", "")


def test_a_token_that_is_named_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file")
    named = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}
    assert dashboard_of(named)[1] == "from a file"
    assert dashboard_of(named | {"RAY_AUTH_TOKEN": "itself"})[1] == "itself"


def test_a_token_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="auth_token"):
        dashboard_of({"RAY_AUTH_MODE": "token", "HOME": str(tmp_path)})
