"""What changes responses: each public method is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from deployments.responses.store.conversation_writes import ConversationWrites
from deployments.responses.store.reads import absence_of, record_of
from deployments.responses.store.room import Room
from deployments.responses.store.threads import NoRoom, Threads
from serve_app.stored_responses.status import LEASE_S, NOT_STORED, with_status
from serve_app.stored_responses.values import (
    UNFINISHED,
    Absence,
    Found,
    NewItem,
    Outcome,
    Record,
)

PUT = """
INSERT OR REPLACE INTO responses
(id, tenant, thread, previous, depth, chain_bytes, size, tokens, status, owner, conversation, response,
 input, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

PLACE = """
SELECT r.thread, r.size, t.expires FROM responses r JOIN threads t ON t.id = r.thread
WHERE r.id = ? AND r.tenant = ?
"""

OF_OWNER = """
SELECT r.id FROM responses r JOIN threads t ON t.id = r.thread
WHERE r.owner = ? AND r.status IN ('queued', 'in_progress') AND t.used < ?
"""
"""What has only now begun may not yet be among those that its owner reports."""


class ResponseWrites:
    """All calls run on the one thread that writes. It is one class because each method is one transaction
    on the same tables."""

    def __init__(
        self, threads: Threads, room: Room, conversations: ConversationWrites, max_entry_bytes: int
    ) -> None:
        self._threads = threads
        self._room = room
        self._conversations = conversations
        self._max_entry_bytes = max_entry_bytes

    def put(self, record: Record, items: Sequence[NewItem], now: float) -> Outcome:
        if record.size > self._max_entry_bytes:
            return Outcome.TOO_LARGE
        if not self._room.has_disk():
            return Outcome.FULL
        try:
            with self._threads.transaction() as db:
                return self._put(db, record, items, now)
        except NoRoom:
            return Outcome.FULL

    def _put(self, db: sqlite3.Connection, record: Record, items: Sequence[NewItem], now: float) -> Outcome:
        row = db.execute(
            "SELECT tenant, status, size, thread FROM responses WHERE id = ?", (record.id,)
        ).fetchone()
        if row is None and absence_of(db, record.tenant, record.id) is not Absence.UNKNOWN:
            return Outcome.OVER
        if row is not None and (
            row[0] != record.tenant or (row[1] not in UNFINISHED and row[1] != record.status)
        ):
            return Outcome.OVER
        thread = self._thread(db, record, now) if row is None else row[3]
        depth, before = self._before(db, record)
        db.execute(
            PUT,
            (
                record.id,
                record.tenant,
                thread,
                record.previous,
                depth + 1,
                before + len(record.input) + len(record.output),
                record.size,
                record.tokens,
                record.status,
                record.owner,
                record.conversation,
                record.response,
                record.input,
                record.output,
            ),
        )
        if record.owner is not None:
            db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (record.owner, now))
        self._room.grow(db, thread, record.tenant, int(row is None), record.size - (row[2] if row else 0))
        self._threads.use(db, thread, now)
        if record.conversation is not None and items:
            self._conversations.insert(db, record.tenant, record.conversation, items)
        if not self._room.make_room(db, record.tenant, thread, now):
            raise NoRoom
        return Outcome.STORED

    def _before(self, db: sqlite3.Connection, record: Record) -> tuple[int, int]:
        """Length and size of the chain that it goes on from. One that was removed while it was generated
        counts: the chain is then longer than what is left of it, which tells that it is broken."""
        row = db.execute(
            "SELECT depth, chain_bytes FROM responses WHERE id = ? AND tenant = ?",
            (record.previous, record.tenant),
        ).fetchone()
        if row is None:
            return (0, 0) if record.previous is None else (1, 0)
        return row[0], row[1]

    def _thread(self, db: sqlite3.Connection, record: Record, now: float) -> int:
        """That of the response before, or of the conversation; else a new one."""
        for table, wanted in (("responses", record.previous), ("conversations", record.conversation)):
            row = db.execute(
                f"SELECT thread FROM {table} WHERE id = ? AND tenant = ?", (wanted, record.tenant)
            ).fetchone()
            if row is not None:
                return int(row[0])
        return self._threads.new(db, record.tenant, now)

    def delete(self, tenant: str, response_id: str, now: float) -> Absence | None:
        with self._threads.transaction() as db:
            row = db.execute(PLACE, (response_id, tenant)).fetchone()
            if row is None or row[2] <= now:
                return absence_of(db, tenant, response_id, expired=row is not None)
            thread, size, _ = row
            db.execute("DELETE FROM responses WHERE id = ?", (response_id,))
            self._threads.note_deleted(db, response_id, tenant, now)
            self._room.grow(db, thread, tenant, -1, -size)
            self._threads.drop_if_empty(db, thread)
            return None

    def cancel(self, tenant: str, response_id: str, now: float) -> Found:
        with self._threads.transaction() as db:
            found = record_of(db, tenant, response_id, now)
            record = found.record
            if record is None or record.status not in UNFINISHED:
                return found
            self._end(db, response_id, "cancelled")
            return record_of(db, tenant, response_id, now)

    def beat(self, owner: str, running: Sequence[str], now: float) -> list[str]:
        with self._threads.transaction() as db:
            db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (owner, now))
            over = []
            for each in running:
                row = db.execute("SELECT status FROM responses WHERE id = ?", (each,)).fetchone()
                if row is None or row[0] not in UNFINISHED:
                    over.append(each)
            for (lost,) in db.execute(OF_OWNER, (owner, now - LEASE_S)).fetchall():
                if lost not in running:  # neither its end nor its failure could be stored
                    self._end(db, lost, "failed", NOT_STORED)
            return over

    def _end(
        self, db: sqlite3.Connection, response_id: str, status: str, error: dict[str, str] | None = None
    ) -> None:
        tenant, thread, response = db.execute(
            "SELECT tenant, thread, response FROM responses WHERE id = ?", (response_id,)
        ).fetchone()
        ended = with_status(response, status, error)
        grown = len(ended) - len(response)
        db.execute(
            "UPDATE responses SET status = ?, response = ?, size = size + ? WHERE id = ?",
            (status, ended, grown, response_id),
        )
        self._room.grow(db, thread, tenant, 0, grown)
