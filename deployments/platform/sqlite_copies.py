"""Rows of an owner's SQLite file in a backup, and back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deployments.platform.sqlite import SqliteFile, snapshot
from serve_app.errors import BackupError

Prepare = Callable[[Path, sqlite3.Connection], None]
"""Makes what is missing in a file of an older version; raises an error of its owner for a newer one."""

Copy = Callable[[Any, Any, str | None], int]
"""Copies rows of one tenant, or all, from one connection to another one, inside a transaction there; returns
how many. What is there stays, so that a second time changes nothing."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows of one owner are copied. ``refused``: what ``prepare`` raises."""

    name: str
    prepare: Prepare
    copy: Copy
    refused: type[Exception]

    def save(self, path: Path, scratch: Path, tenant: str | None) -> tuple[Path, int]:
        """A new file in ``scratch`` with what the file at ``path`` holds now. Its owner may be running.

        Raises:
            BackupError: it cannot be read, or is of a newer version.
        """
        seen, saved = scratch / f"{self.name}.seen", scratch / self.name
        try:
            snapshot(path, seen)
            with self._opened(seen) as source, self._opened(saved) as target:
                rows = self.copy(source, target, tenant)
        except (OSError, sqlite3.Error, self.refused) as error:
            raise BackupError(f"{path}: {error}") from error
        seen.unlink()
        return saved, rows

    @contextmanager
    def restoring(self, saved: Path, file: SqliteFile, tenant: str | None) -> Iterator[int]:
        """The rows of ``saved`` are in the owner's file when this ends, or none of them.

        Raises:
            BackupError: the owner is running, a file is of a newer version, or cannot be read.
        """
        try:
            with self._opened(saved) as source, file.alone(partial(self.prepare, file.path)) as target:
                yield self.copy(source, target, tenant)
        except (OSError, sqlite3.Error, self.refused) as error:
            if "locked" in str(error):
                raise BackupError(
                    f"{file.path} is in use. Nothing was restored: stop the application first."
                ) from error
            raise BackupError(f"{file.path}: {error}") from error

    @contextmanager
    def opened(self, saved: Path) -> Iterator[sqlite3.Connection]:
        """A file of a backup, brought to this version. Raises: BackupError."""
        try:
            with self._opened(saved) as connection:
                yield connection
        except (OSError, sqlite3.Error, self.refused) as error:
            raise BackupError(f"{self.name} of the backup: {error}") from error

    @contextmanager
    def _opened(self, path: Path) -> Iterator[sqlite3.Connection]:
        """A file of ours alone, in the scratch folder, in a transaction."""
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            path.chmod(0o600)
            self.prepare(path, connection)
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()
