"""What responses and conversations have in common: transactions, and the threads that expire as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deployments.responses.store.room import Room
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.values import Absence

AT_ONCE = 64
"""Threads that expire in one transaction: other writes wait for it."""

FORGET_S = 86_400.0
"""Least time that it is remembered why an id is gone."""


class NoRoom(Exception):
    """Ends a transaction without a change."""


class Threads:
    """The threads in the file. All calls run on the one thread that writes."""

    def __init__(self, db: sqlite3.Connection, room: Room, settings: ResponsesSettings) -> None:
        self._db = db
        self._room = room
        self._settings = settings

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Its end commits. An exception takes all back, in the file and in the counts, also where the commit
        fails."""
        try:
            with self._db:  # rolls back, unless SQLite has done so itself, as on a full disk
                self._db.execute("BEGIN IMMEDIATE")
                if not self._room.is_counted:
                    self._room.count(self._db)
                yield self._db
        except BaseException:
            self._room.is_counted = False
            with suppress(sqlite3.Error):  # where it cannot be read now, the next transaction counts
                self._room.count(self._db)
            raise

    def begin(self, now: float) -> None:
        """After a start: gateways that could not report meanwhile are given the time to."""
        with self.transaction() as db:
            db.execute("UPDATE owners SET seen = ?", (now,))

    def new(self, db: sqlite3.Connection, tenant: str, now: float) -> int:
        made = db.execute(
            "INSERT INTO threads(tenant, used, expires) VALUES (?, ?, ?)",
            (tenant, now, now + self._settings.ttl_s),
        ).lastrowid
        assert made is not None
        return made

    def use(self, db: sqlite3.Connection, thread: int, now: float) -> None:
        db.execute(
            "UPDATE threads SET used = ?, expires = ? WHERE id = ?", (now, now + self._settings.ttl_s, thread)
        )

    def drop_if_empty(self, db: sqlite3.Connection, thread: int) -> None:
        db.execute("DELETE FROM threads WHERE id = ? AND entries <= 0", (thread,))

    def note_deleted(self, db: sqlite3.Connection, wanted: str, tenant: str, now: float) -> None:
        db.execute(
            "INSERT OR REPLACE INTO gone VALUES (?, ?, ?, ?)", (wanted, tenant, str(Absence.DELETED), now)
        )

    def sweep(self, now: float) -> bool:
        """Remove some of what has expired; whether there is more."""
        with self.transaction() as db:
            old = db.execute(
                "SELECT id, tenant FROM threads WHERE expires <= ? LIMIT ?", (now, AT_ONCE)
            ).fetchall()
            for thread, tenant in old:
                self._room.remove(db, thread, tenant, Absence.EXPIRED, now)
            db.execute("DELETE FROM gone WHERE at < ?", (now - max(FORGET_S, self._settings.ttl_s),))
            db.execute(
                "DELETE FROM gone WHERE id IN (SELECT id FROM gone ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (self._settings.max_entries,),
            )
            db.execute("DELETE FROM owners WHERE seen < ?", (now - FORGET_S,))
            return len(old) == AT_ONCE
