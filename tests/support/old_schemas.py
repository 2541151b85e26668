"""Databases as earlier versions made them: their statements, and a row of each table as they wrote it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SALT, HASH = "0f" * 16, "1e" * 32
KEY = {
    "record": {"id": "0a1b2c3d4e5f", "tenant": "acme", "salt": SALT, "hash": HASH, "models": ["m"]},
    "label": "build",
    "version": 2,
    "created_at": 1000.0,
    "changed_at": 1001.0,
}
"""Without `changed_by`, which came later."""

ACCOUNTS_KEYS = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE gateways(gateway TEXT PRIMARY KEY, seq INTEGER NOT NULL, seen REAL NOT NULL);
CREATE TABLE keys(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, revoked INTEGER NOT NULL,
    changed INTEGER NOT NULL, key BLOB NOT NULL) WITHOUT ROWID;
CREATE UNIQUE INDEX keys_by_change ON keys(changed);
CREATE INDEX keys_of_tenant ON keys(tenant, id);
INSERT INTO meta VALUES('store', '00112233');
"""
ACCOUNTS_USAGE = """
CREATE TABLE usage(
    day TEXT NOT NULL, tenant TEXT NOT NULL, key TEXT NOT NULL, user TEXT NOT NULL, model TEXT NOT NULL,
    requests INTEGER NOT NULL, refused INTEGER NOT NULL, failed INTEGER NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, tokens_cached INTEGER NOT NULL, cache_hits INTEGER NOT NULL,
    tokens_saved INTEGER NOT NULL, audio_s REAL NOT NULL, gpu_s REAL NOT NULL, cost REAL NOT NULL,
    gpu_cost REAL NOT NULL, saved REAL NOT NULL,
    PRIMARY KEY(day, tenant, key, user, model)) WITHOUT ROWID;
"""
ACCOUNTS_LIMITS = """
CREATE TABLE limits(scope TEXT PRIMARY KEY, changed INTEGER NOT NULL, body BLOB) WITHOUT ROWID;
CREATE INDEX limits_by_change ON limits(changed);
CREATE TABLE used(
    scope TEXT, bound TEXT, label TEXT, amount INTEGER NOT NULL,
    PRIMARY KEY(scope, bound, label)) WITHOUT ROWID;
CREATE TABLE leases(gateway TEXT PRIMARY KEY, seq INTEGER NOT NULL, seen REAL NOT NULL);
"""
RESPONSES = """
CREATE TABLE threads(
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, used REAL NOT NULL, expires REAL NOT NULL,
    entries INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX threads_by_use ON threads(tenant, used);
CREATE INDEX threads_by_end ON threads(expires);
CREATE TABLE responses(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, thread INTEGER NOT NULL, previous TEXT,
    depth INTEGER NOT NULL, chain_bytes INTEGER NOT NULL, size INTEGER NOT NULL, tokens INTEGER NOT NULL,
    status TEXT NOT NULL, owner TEXT, conversation TEXT, response BLOB NOT NULL, input BLOB NOT NULL,
    output BLOB NOT NULL);
CREATE INDEX responses_by_thread ON responses(thread);
CREATE TABLE conversations(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, thread INTEGER NOT NULL, created INTEGER NOT NULL,
    metadata BLOB NOT NULL, bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX conversations_by_thread ON conversations(thread);
CREATE TABLE items(
    position INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, id TEXT NOT NULL,
    item BLOB NOT NULL, UNIQUE(conversation, id));
CREATE TABLE gone(
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, why TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX gone_by_time ON gone(at);
CREATE TABLE owners(owner TEXT PRIMARY KEY, seen REAL NOT NULL);
"""
BY_OWNER = "CREATE INDEX responses_of_owner ON responses(owner) WHERE status IN ('queued', 'in_progress');"

FAR = 9e9
"""A time that does not come."""

ZEROS = ", 0" * 7 + ", 0.0" * 5
USED_ROW = f"INSERT INTO usage VALUES('2026-09-21', 'acme', '0a1b2c3d4e5f', '', 'm', 3{ZEROS})"
LIMIT_ROW = """INSERT INTO limits VALUES('tenant:acme', 1, '{"scope":"tenant:acme","tokens_per_day":9}')"""


@dataclass(frozen=True)
class Old:
    """``commit`` made such files first. ``rows`` are written after the tables are there."""

    commit: str
    tables: str
    rows: Sequence[str] = ()

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(self.tables)
        for row in self.rows:
            connection.execute(row)
        if "CREATE TABLE keys" in self.tables:
            body = json.dumps(KEY).encode()
            connection.execute("INSERT INTO keys VALUES('0a1b2c3d4e5f', 'acme', NULL, 0, 1, ?)", (body,))
        connection.execute("PRAGMA user_version=1")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()


RESPONSE_ROWS = (
    f"INSERT INTO threads VALUES(7, 'acme', 1000.0, {FAR}, 1, 9)",
    "INSERT INTO responses VALUES('resp_1', 'acme', 7, NULL, 1, 9, 9, 3, 'completed', NULL, NULL, "
    """CAST('{"id":"resp_1"}' AS BLOB), CAST('["asked"]' AS BLOB), CAST('["said"]' AS BLOB))""",
    f"INSERT INTO threads VALUES(8, 'acme', 1000.0, {FAR}, 1, 9)",
    "INSERT INTO conversations VALUES('conv_1', 'acme', 8, 1000, CAST('{}' AS BLOB), 9)",
    "INSERT INTO items(conversation, id, item) VALUES('conv_1', 'item_1', CAST('\"first\"' AS BLOB))",
    "INSERT INTO items(conversation, id, item) VALUES('conv_1', 'item_2', CAST('\"second\"' AS BLOB))",
)

ACCOUNTS = {
    "keys": Old("d7c23d0", ACCOUNTS_KEYS),
    "usage": Old("dab135b", ACCOUNTS_KEYS + ACCOUNTS_USAGE, (USED_ROW,)),
    "limits": Old("26990df", ACCOUNTS_KEYS + ACCOUNTS_USAGE + ACCOUNTS_LIMITS, (USED_ROW, LIMIT_ROW)),
}
STORED = {
    "first": Old("140bfff", RESPONSES, RESPONSE_ROWS),
    "by owner": Old("b1f5e93", RESPONSES + BY_OWNER, RESPONSE_ROWS),
    "in order": Old(
        "4ebe770",
        RESPONSES + BY_OWNER + "CREATE INDEX items_in_order ON items(conversation);",
        RESPONSE_ROWS,
    ),
}
