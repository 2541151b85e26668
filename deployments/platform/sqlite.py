"""Opens the SQLite files of owners: write-ahead log, a folder and a file for this user only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """How connections to one file are made. ``busy_ms``: how long a statement waits for another process, a
    replica that is being replaced or a backup. ``is_synced``: each commit waits for the disk, so that it
    holds also without power; else a killed process loses nothing, and a machine without power a moment.
    ``cache_kib``: pages that a connection keeps; 0: SQLite's default. ``overwrites``: what is deleted is
    overwritten at once, and not only where a page is written anyway."""

    path: Path
    busy_ms: int
    is_synced: bool
    cache_kib: int = 0
    overwrites: bool = False

    def open(
        self, count: int, prepare: Callable[[sqlite3.Connection], None]
    ) -> tuple[sqlite3.Connection, ...]:
        """So many connections; ``prepare`` gets the first one before the others are made. Each is used from
        one thread at a time, which need not be this one. Only this user may enter the folder.

        Raises:
            OSError, sqlite3.Error: the folder cannot be made, or the file not be opened. And what
                ``prepare`` raises. No connection is left open then.
        """
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        opened = [self._connect()]
        try:
            prepare(opened[0])
            opened += [self._connect() for _ in range(count - 1)]
        except BaseException:
            for connection in opened:
                connection.close()
            raise
        return tuple(opened)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            with suppress(OSError):
                self.path.chmod(0o600)
            connection.execute(f"PRAGMA busy_timeout={self.busy_ms}")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={'FULL' if self.is_synced else 'NORMAL'}")
            connection.execute(f"PRAGMA secure_delete={'ON' if self.overwrites else 'FAST'}")
            if self.cache_kib:
                connection.execute(f"PRAGMA cache_size=-{self.cache_kib}")
        except BaseException:
            connection.close()
            raise
        return connection
