"""Feedback and captured requests in a backup, and back. What is sealed stays so."""

from __future__ import annotations

import sqlite3

from deployments.feedback.store.schema import VERSION, prepare
from deployments.platform.sqlite_copies import Rows
from serve_app.feedback.values import FeedbackError

SCHEMA = VERSION

TABLES = {
    "requests": "tenant, id, at, body",
    "feedback": "tenant, request, author, at, model, negative, corrected, asked, said, sealed",
    "captures": "tenant, id, at, endpoint, model, size, content",
}


def copy_feedback(source: sqlite3.Connection, target: sqlite3.Connection, tenant: str | None) -> int:
    """What was said there stays. Inside a transaction."""
    where, values = (" WHERE tenant=?", (tenant,)) if tenant is not None else ("", ())
    copied = 0
    for table, columns in TABLES.items():
        marks = ", ".join("?" * (columns.count(",") + 1))
        order = "at" if table == "requests" else "number"
        rows = source.execute(f"SELECT {columns} FROM {table}{where} ORDER BY {order}", values)
        added = target.executemany(f"INSERT OR IGNORE INTO {table}({columns}) VALUES({marks})", rows)
        copied += added.rowcount
    return copied


ROWS = Rows("feedback", prepare, copy_feedback, FeedbackError)
