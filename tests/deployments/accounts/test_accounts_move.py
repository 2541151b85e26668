"""Accounts move between a file and a Postgres database through a backup."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kept import Place, backup, restore
from support.postgres import PostgresServer

URL_ENV = "PROMPTLY_TEST_BACKUP_URL"


async def test_accounts_move_between_a_file_and_postgres(
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(URL_ENV, postgres.new_schema())
    here, back = Place(tmp_path / "here"), Place(tmp_path / "back")
    server = Place(tmp_path / "server", URL_ENV)
    await here.fill()
    first, second = tmp_path / "first", tmp_path / "second"
    assert backup(here, first) == 0
    for _ in range(2):
        assert restore(server, first) == 0
    async with server.owner_of_accounts():
        assert backup(server, second) == 0
        assert restore(server, first) == 1
    assert "another application keeps its accounts in this schema" in capsys.readouterr().err
    assert restore(back, second) == 0
    assert await back.found() == await here.found() == await server.found()
    assert not (server.folder / "accounts" / "accounts.sqlite3").exists()
