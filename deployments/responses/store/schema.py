"""The tables of responses, and how their SQLite file is opened."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

from deployments.platform.sqlite import SqliteFile
from serve_app.stored_responses.values import StoreError

VERSION = 1
"""Raise it when the tables change: a file of another version is refused, not guessed at."""

FILE = "responses.sqlite3"
BUSY_MS = 5000
CACHE_KIB = 32_768

TABLES = """
CREATE TABLE IF NOT EXISTS threads(
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, used REAL NOT NULL, expires REAL NOT NULL,
    entries INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS threads_by_use ON threads(tenant, used);
CREATE INDEX IF NOT EXISTS threads_by_end ON threads(expires);

CREATE TABLE IF NOT EXISTS responses(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, thread INTEGER NOT NULL, previous TEXT,
    depth INTEGER NOT NULL, chain_bytes INTEGER NOT NULL, size INTEGER NOT NULL, tokens INTEGER NOT NULL,
    status TEXT NOT NULL, owner TEXT, conversation TEXT, response BLOB NOT NULL, input BLOB NOT NULL,
    output BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS responses_by_thread ON responses(thread);
CREATE INDEX IF NOT EXISTS responses_of_owner ON responses(owner) WHERE status IN ('queued', 'in_progress');

CREATE TABLE IF NOT EXISTS conversations(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, thread INTEGER NOT NULL, created INTEGER NOT NULL,
    metadata BLOB NOT NULL, bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS conversations_by_thread ON conversations(thread);

CREATE TABLE IF NOT EXISTS items(
    position INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, id TEXT NOT NULL,
    item BLOB NOT NULL, UNIQUE(conversation, id));

CREATE INDEX IF NOT EXISTS items_in_order ON items(conversation);

CREATE TABLE IF NOT EXISTS gone(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, why TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS gone_by_time ON gone(at);

CREATE TABLE IF NOT EXISTS owners(owner TEXT PRIMARY KEY, seen REAL NOT NULL);
"""
"""A thread is what expires and is evicted as one: a chain of responses with all its branches, or a
conversation with its responses. ``gone`` remembers for a while why an id is not there."""


def file_in(folder: Path) -> SqliteFile:
    """The system writes in its own time: synced commits would make each response wait for the disk."""
    return SqliteFile(folder / FILE, BUSY_MS, is_synced=False, cache_kib=CACHE_KIB)


def open_file(folder: Path) -> tuple[sqlite3.Connection, sqlite3.Connection, sqlite3.Connection]:
    """Connections to write, to read and to read what is large.

    Raises:
        StoreError: the file cannot be opened, or is of another version.
    """
    path = folder / FILE
    try:
        writing, reading, reading_large = file_in(folder).open(3, partial(prepare, path))
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"responses {path}: {error}") from error
    return writing, reading, reading_large


def prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Make what is missing. Raises: StoreError: the file is of another version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise StoreError(f"responses {path}: written by another version ({version}, not {VERSION})")
    connection.executescript(TABLES)
    connection.execute(f"PRAGMA user_version={VERSION}")
