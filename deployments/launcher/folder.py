"""The folder that one start writes to."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deployments.platform.shipped import shipped_folder
from serve_app.request.admin_token import TOKEN_VARIABLE, make_token, write_secret


@dataclass(frozen=True)
class StartFolder:
    """The files of this start; only this user can read them.

    Names are short: a unix socket's path holds at most 107 bytes, and Ray and Serve put folders of 40 to 60
    characters between this folder and their sockets.
    """

    root: Path

    @classmethod
    def create(cls) -> StartFolder:
        folder = cls(Path(tempfile.mkdtemp(prefix="promptly-", dir="/tmp")))
        for child in (folder.ray, folder.haproxy, folder.temp, folder.logs):
            child.mkdir()
        shutil.copytree(shipped_folder() / "observability" / "dashboards", folder.dashboards)
        write_secret(folder.token, secrets.token_hex(32))
        write_secret(folder.door_secret, secrets.token_hex(32))
        write_secret(folder.admin_token, os.environ.get(TOKEN_VARIABLE) or make_token())
        return folder

    def clear_all_but_logs(self) -> None:
        """No secret stays on the disk: tokens, keys, certificates with their keys."""
        _clear(self.root, kept={self.logs, self.ray})
        for session in self.ray.glob("session_*"):
            if not session.is_symlink():
                _clear(session, kept={session / "logs"})

    @property
    def token(self) -> Path:
        """The secret that every request to this start's Ray carries."""
        return self.root / "token"

    @property
    def secrets(self) -> Path:
        """Keys from the variables that the settings name; see deployments/platform/secret_environment.py."""
        return self.root / "secrets.json"

    @property
    def door_secret(self) -> Path:
        """The secret by which gateways recognise HAProxy; see deployments/platform/door_secret.py."""
        return self.root / "door-secret"

    @property
    def admin_token(self) -> Path:
        """The token for ``/admin`` where no key is required."""
        return self.root / "admin-token"

    @property
    def settings(self) -> Path:
        """A shell file; after ``source`` the commands ``ray`` and ``serve`` use this start."""
        return self.root / "env"

    @property
    def ray(self) -> Path:
        return self.root / "ray"

    @property
    def dashboards(self) -> Path:
        """What the Grafana that Ray configures loads: ours, and Ray writes its own beside them."""
        return self.root / "dashboards"

    @property
    def haproxy(self) -> Path:
        return self.root / "h"

    @property
    def temp(self) -> Path:
        return self.root / "t"

    @property
    def logs(self) -> Path:
        return self.root / "logs"


def _clear(folder: Path, kept: set[Path]) -> None:
    """What cannot be removed does not keep the rest."""
    with suppress(OSError):
        for path in set(folder.iterdir()) - kept:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()
