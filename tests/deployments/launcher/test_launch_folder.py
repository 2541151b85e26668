"""The folder of a start."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from deployments.launcher.folder import StartFolder

UNIX_SOCKET_PATH_BYTES = 107


def test_the_folder_of_a_start_is_private_and_short_enough_for_its_sockets() -> None:
    folder = StartFolder.create()
    try:
        assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
        for secret in (folder.token, folder.admin_token):
            assert len(secret.read_text(encoding="ascii")) >= 32
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        node, session = "f" * 56, "session_2026-01-01_00-00-00_123456_1234567"
        haproxy_binds = folder.haproxy / node / "a.sock.1234567.tmp"
        ray_binds = folder.ray / session / "sockets" / "plasma_store.1234567"
        assert max(len(str(haproxy_binds)), len(str(ray_binds))) <= UNIX_SOCKET_PATH_BYTES
    finally:
        shutil.rmtree(folder.root)


def test_the_token_that_the_user_gives_is_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTLY_ADMIN_TOKEN", "given-by-the-user-0123456789")
    folder = StartFolder.create()
    try:
        assert folder.admin_token.read_text() == "given-by-the-user-0123456789"
    finally:
        shutil.rmtree(folder.root)


def test_the_dashboards_lie_where_ray_writes_its_own() -> None:
    folder = StartFolder.create()
    try:
        assert {path.name for path in folder.dashboards.iterdir()} == {
            "promptly_capacity.json",
            "promptly_overview.json",
        }
    finally:
        shutil.rmtree(folder.root)


def test_logs_that_are_kept_have_no_secret_beside_them(tmp_path: Path) -> None:
    folder = StartFolder(tmp_path)
    session = folder.ray / "session_1"
    for made in (folder.logs, folder.haproxy / "node", folder.temp, session / "logs", session / "sockets"):
        made.mkdir(parents=True)
    (folder.ray / "session_latest").symlink_to(session)
    secrets = (folder.token, folder.admin_token, folder.secrets, folder.settings)
    for secret in (*secrets, folder.haproxy / "node" / "certificate.pem", session / "sockets" / "s"):
        secret.write_text("secret")
    log = session / "logs" / "gateway.log"
    log.write_text("a line")
    folder.clear_all_but_logs()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [log]
    assert (folder.ray / "session_latest" / "logs" / "gateway.log").is_file()
