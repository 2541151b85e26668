"""Opens the SQLite files of owners: write-ahead log, a folder and a file for this user only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SNAPSHOT_S = 30.0
"""How long a copy waits for another process that writes."""

HELD_BYTES = 256 << 10
"""Pages of a transaction that :meth:`SqliteFile.alone` holds in memory. Others are in the log of writes
before it ends, so that a full disk is noticed while all can still be taken back."""


MAGIC, VERSION_AT, HEADER_BYTES = b"SQLite format 3\0", 60, 100
"""The head of SQLite's files: how it begins, where four bytes are the owner's version, and its length."""


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

    @contextmanager
    def alone(self, prepare: Callable[[sqlite3.Connection], None]) -> Iterator[sqlite3.Connection]:
        """One connection that no other process has beside it, inside a transaction: its end commits, an
        exception takes all back.

        Raises:
            OSError, sqlite3.Error: the file cannot be opened, or another process has it open.
        """
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=self.busy_ms / 1000)
        try:
            with suppress(OSError):
                self.path.chmod(0o600)
            # In this mode SQLite locks the whole file, which every process that has it open shares.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA cache_size=-{HELD_BYTES >> 10}")
            prepare(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:  # on a full disk SQLite has taken all back itself
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        finally:
            connection.close()

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


def version_in(path: Path) -> int:
    """The owner's version (``PRAGMA user_version``) as the file's head has it; 0 where there is none. It is
    not opened as a database, which would put files beside it."""
    head = _head(path)
    return int.from_bytes(head[VERSION_AT : VERSION_AT + 4], "big") if _is_one(head) else 0


def is_other_file(path: Path) -> bool:
    """Whether something else is at ``path``: its head is no database's. An empty file becomes one; what
    cannot be read is left to who opens it."""
    if path.is_dir():
        return True
    head = _head(path)
    return head != b"" and not _is_one(head)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEADER_BYTES)
    except OSError:
        return b""


def _is_one(head: bytes) -> bool:
    return head.startswith(MAGIC) and len(head) == HEADER_BYTES


def bytes_at_end(path: Path) -> int:
    """What the end of a transaction of :meth:`SqliteFile.alone` may take on the disk at most: the pages that
    it holds, and all that is in the log of writes once more, in the file itself."""
    log = path.with_name(f"{path.name}-wal")
    return 3 * HELD_BYTES + (log.stat().st_size if log.exists() else 0)


def snapshot(path: Path, into: Path) -> None:
    """What the file at ``path`` holds at one moment, in a new file of this user only, without what was
    deleted. Other processes may go on using it.

    Raises:
        OSError, sqlite3.Error: the file cannot be read, or the new one not be written.
    """
    into.touch(mode=0o600, exist_ok=False)
    with closing(sqlite3.connect(path, timeout=SNAPSHOT_S)) as connection:
        connection.execute("VACUUM INTO ?", (str(into),))
