"""Responses and conversations in a backup, and back: one thread after the other, each whole or not at all.

Which gateway works on a response is not copied: one that was unfinished is found as failed.
"""

from __future__ import annotations

import sqlite3

from deployments.platform.sqlite_copies import Rows
from deployments.responses.store.schema import VERSION, prepare
from serve_app.stored_responses.values import Absence, StoreError

SCHEMA = VERSION

RESPONSE = (
    "id, tenant, previous, depth, chain_bytes, size, tokens, status, owner, conversation, response, input, "
    "output"
)
CONVERSATION = "id, tenant, created, metadata, bytes"
THREAD = "tenant, used, expires, entries, bytes"


def copy_responses(source: sqlite3.Connection, target: sqlite3.Connection, tenant: str | None) -> int:
    """A thread of which anything is there stays as it is there, and one of which anything was deleted there
    does not come back. Inside a transaction."""
    where, values = ("WHERE tenant=?", (tenant,)) if tenant is not None else ("", ())
    threads = source.execute(f"SELECT id, {THREAD} FROM threads {where} ORDER BY used, id", values)
    copied = 0
    for thread, *row in threads.fetchall():
        if not _is_known(source, target, thread):
            made = target.execute(f"INSERT INTO threads({THREAD}) VALUES(?, ?, ?, ?, ?)", row).lastrowid
            copied += _copy_thread(source, target, thread, made)
    gone = source.execute(f"SELECT id, tenant, why, at FROM gone {where}", values)
    target.executemany("INSERT OR IGNORE INTO gone VALUES(?, ?, ?, ?)", gone)
    return copied


ROWS = Rows("responses", prepare, copy_responses, StoreError)


def _is_known(source: sqlite3.Connection, target: sqlite3.Connection, thread: int) -> bool:
    for table in ("responses", "conversations"):
        for (name,) in source.execute(f"SELECT id FROM {table} WHERE thread=?", (thread,)):
            deleted = target.execute(
                "SELECT 1 FROM gone WHERE id=? AND why=?", (name, str(Absence.DELETED))
            ).fetchone()
            if deleted or target.execute(f"SELECT 1 FROM {table} WHERE id=?", (name,)).fetchone():
                return True
    return False


def _copy_thread(
    source: sqlite3.Connection, target: sqlite3.Connection, thread: int, made: int | None
) -> int:
    """Returns how many responses and conversations it has. Items keep their order."""
    copied = 0
    for table, columns in (("responses", RESPONSE), ("conversations", CONVERSATION)):
        marks = ", ".join("?" * (columns.count(",") + 2))
        for row in source.execute(f"SELECT {columns} FROM {table} WHERE thread=? ORDER BY rowid", (thread,)):
            target.execute(f"INSERT INTO {table}({columns}, thread) VALUES({marks})", (*row, made))
            copied += 1
    items = source.execute(
        "SELECT conversation, id, item FROM items WHERE conversation IN "
        "(SELECT id FROM conversations WHERE thread=?) ORDER BY position",
        (thread,),
    )
    target.executemany("INSERT INTO items(conversation, id, item) VALUES(?, ?, ?)", items)
    return copied
