"""The tables of accounts, and how their SQLite file is opened."""

from __future__ import annotations

import secrets
import sqlite3
from functools import partial
from pathlib import Path

from deployments.accounts.store.usage import USAGE_TABLES
from deployments.platform.sqlite import SqliteFile
from serve_app.accounts.keys import AccountsError

VERSION = 1
"""Raise it when a table changes: a file of a newer version is refused, not guessed at. A new table needs no
new version."""

FILE = "accounts.sqlite3"
BUSY_MS = 2000

TABLES = """
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE IF NOT EXISTS gateways(gateway TEXT PRIMARY KEY, seq INTEGER NOT NULL, seen REAL NOT NULL);

CREATE TABLE IF NOT EXISTS keys(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, "user" TEXT, revoked INTEGER NOT NULL,
    changed INTEGER NOT NULL, key BLOB NOT NULL) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS keys_by_change ON keys(changed);
CREATE INDEX IF NOT EXISTS keys_of_tenant ON keys(tenant, id);

CREATE TABLE IF NOT EXISTS refused_users(
    tenant TEXT, "user" TEXT, body BLOB NOT NULL, PRIMARY KEY(tenant, "user")) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS limits(scope TEXT PRIMARY KEY, changed INTEGER NOT NULL, body BLOB) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS limits_by_change ON limits(changed);
CREATE TABLE IF NOT EXISTS used(
    scope TEXT, bound TEXT, label TEXT, amount INTEGER NOT NULL,
    PRIMARY KEY(scope, bound, label)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases(gateway TEXT PRIMARY KEY, seq INTEGER NOT NULL, seen REAL NOT NULL);
"""
"""``gateways``: the last report that was applied. ``keys.changed`` counts all changes of keys: what a gateway
has seen of them is one number."""

STORE = "store"
"""Names this file: a gateway that knows another one reads everything again."""


def file_in(folder: Path) -> SqliteFile:
    """Written to the disk with every commit: a key that was revoked stays so, even without power."""
    return SqliteFile(folder / FILE, BUSY_MS, is_synced=True)


def open_file(folder: Path) -> tuple[sqlite3.Connection, sqlite3.Connection, str]:
    """Connections to write and to read, and the file's own name.

    Raises:
        AccountsError: the file cannot be opened, or is of a newer version.
    """
    path = folder / FILE
    try:
        writing, reading = file_in(folder).open(2, partial(prepare, path))
        (name,) = writing.execute("SELECT value FROM meta WHERE name=?", (STORE,)).fetchone()
        return writing, reading, name
    except (OSError, sqlite3.Error) as error:
        raise AccountsError(f"accounts {path}: {error}") from error


def prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Make what is missing. Raises: AccountsError: the file is of a newer version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise AccountsError(f"accounts {path}: written by a newer version ({version}, not {VERSION})")
    connection.executescript(TABLES + USAGE_TABLES)
    connection.execute("INSERT OR IGNORE INTO meta VALUES(?, ?)", (STORE, secrets.token_hex(8)))
    connection.execute(f"PRAGMA user_version={VERSION}")
