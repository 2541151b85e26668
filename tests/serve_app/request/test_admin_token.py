"""The token that opens /admin where no key is asked for."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from serve_app.errors import SettingsError, Unauthorized
from serve_app.request.admin_token import AdminToken, load_admin_token

TOKEN = "a-token-of-enough-characters"


@pytest.mark.parametrize(
    "header", [None, "", TOKEN, f"Basic {TOKEN}", "Bearer ", "Bearer none", f"Bearer {TOKEN}x"]
)
def test_anything_but_the_token_is_refused(header: str | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        AdminToken.of(TOKEN).check(header)
    assert TOKEN not in refused.value.message


def test_the_token_is_taken_and_nobody_keeps_it() -> None:
    token = AdminToken.of(TOKEN)
    token.check(f"Bearer {TOKEN}")
    token.check(f"bearer  {TOKEN} ")
    assert TOKEN not in repr(token)


def test_the_variable_goes_before_the_file_and_that_before_one_that_is_made(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text(TOKEN + "\n")
    both = {
        "PROMPTLY_ADMIN_TOKEN": "another-one-of-enough-characters",
        "PROMPTLY_ADMIN_TOKEN_FILE": str(file),
    }
    load_admin_token(both, tmp_path).check("Bearer another-one-of-enough-characters")
    load_admin_token({"PROMPTLY_ADMIN_TOKEN_FILE": str(file)}, tmp_path).check(f"Bearer {TOKEN}")
    assert not (tmp_path / "admin-token").exists()


def test_one_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    made = load_admin_token({}, folder)
    file = folder / "admin-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made.check(f"Bearer {file.read_text()}")
    assert load_admin_token({}, folder) == made


@pytest.mark.parametrize("token", ["short", "not ascii, but long enough: é", " " * 40])
def test_a_token_that_could_be_guessed_or_never_sent_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(SettingsError, match="PROMPTLY_ADMIN_TOKEN: expected at least 20") as refused:
        load_admin_token({"PROMPTLY_ADMIN_TOKEN": token}, tmp_path)
    assert token.strip() == "" or token not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        load_admin_token({"PROMPTLY_ADMIN_TOKEN_FILE": str(tmp_path / "nowhere")}, tmp_path)
