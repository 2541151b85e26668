"""The tables of feedback, and how their SQLite file is opened."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

from deployments.platform.sqlite import SqliteFile
from serve_app.feedback.values import FeedbackError

VERSION = 1
"""Raise it when a table changes: a file of a newer version is refused, not guessed at. A new table needs no
new version."""

FILE = "feedback.sqlite3"
BUSY_MS = 2000

TABLES = """
CREATE TABLE IF NOT EXISTS requests(
    tenant TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY(tenant, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_time ON requests(at);
CREATE INDEX IF NOT EXISTS requests_of_tenant ON requests(tenant, at);

CREATE TABLE IF NOT EXISTS feedback(
    number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, request TEXT NOT NULL,
    author TEXT NOT NULL, at REAL NOT NULL, model TEXT, negative INTEGER NOT NULL, corrected INTEGER NOT NULL,
    asked BLOB NOT NULL, said BLOB NOT NULL, sealed INTEGER NOT NULL, UNIQUE(tenant, request, author));
CREATE INDEX IF NOT EXISTS feedback_by_time ON feedback(at);
CREATE INDEX IF NOT EXISTS feedback_of_tenant ON feedback(tenant, number);

CREATE TABLE IF NOT EXISTS captures(
    number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL,
    endpoint TEXT NOT NULL, model TEXT NOT NULL, size INTEGER NOT NULL, content BLOB NOT NULL,
    UNIQUE(tenant, id));
CREATE INDEX IF NOT EXISTS captures_by_time ON captures(at);
CREATE INDEX IF NOT EXISTS captures_of_tenant ON captures(tenant, number);
"""
"""``requests.body`` and ``feedback.asked``: a ``Judged``; ``feedback.said``: a ``Said``, sealed where the
settings name a key; ``captures.content``: a ``Content``, always sealed."""


def file_in(folder: Path) -> SqliteFile:
    return SqliteFile(folder / FILE, BUSY_MS, is_synced=False, overwrites=True)


def open_file(folder: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Connections to write and to read. Only this user may enter the folder.

    Raises:
        FeedbackError: the file cannot be opened, or is of a newer version.
    """
    file = file_in(folder)
    try:
        writing, reading = file.open(2, partial(prepare, file.path))
    except (OSError, sqlite3.Error) as error:
        raise FeedbackError(f"feedback {file.path}: {error}") from error
    return writing, reading


def prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Make what is missing. Raises: FeedbackError: the file is of a newer version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise FeedbackError(f"feedback {path}: written by a newer version ({version}, not {VERSION})")
    connection.executescript(TABLES)
    connection.execute(f"PRAGMA user_version={VERSION}")
