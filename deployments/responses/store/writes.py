"""What changes the file: each method is one transaction, on the one thread that writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deployments.responses.store.reads import absence_of, conversation_of, record_of
from deployments.responses.store.room import Room
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.status import with_status
from serve_app.stored_responses.values import (
    UNFINISHED,
    Absence,
    Added,
    Conversation,
    Found,
    FoundConversation,
    NewItem,
    Outcome,
    Record,
)

AT_ONCE = 64
"""Threads that expire in one transaction: other writes wait for it."""

FORGET_S = 86_400.0
"""Least time that it is remembered why an id is gone."""

PUT = """
INSERT OR REPLACE INTO responses
(id, tenant, thread, previous, depth, chain_bytes, size, tokens, status, owner, conversation, response,
 input, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class NoRoom(Exception):
    """Ends a transaction without a change."""


class Writes:
    def __init__(self, db: sqlite3.Connection, room: Room, settings: ResponsesSettings) -> None:
        self._db = db
        self._room = room
        self._settings = settings

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            self._room.count(self._db)
            raise
        self._db.execute("COMMIT")

    def begin(self, now: float) -> None:
        """After a start: gateways that could not report meanwhile are given the time to."""
        with self._transaction() as db:
            db.execute("UPDATE owners SET seen = ?", (now,))
        self._room.count(self._db)

    def put(self, record: Record, items: Sequence[NewItem], now: float) -> Outcome:
        if record.size > self._settings.max_entry_bytes:
            return Outcome.TOO_LARGE
        if not self._room.has_disk():
            return Outcome.FULL
        try:
            with self._transaction() as db:
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
                before + record.size,
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
        self._use(db, thread, now)
        if record.conversation is not None and items:
            self._add_items(db, record.tenant, record.conversation, items)
        if not self._room.make_room(db, record.tenant, thread, now):
            raise NoRoom
        return Outcome.STORED

    def _before(self, db: sqlite3.Connection, record: Record) -> tuple[int, int]:
        """Length and size of the chain that it goes on from."""
        row = db.execute(
            "SELECT depth, chain_bytes FROM responses WHERE id = ? AND tenant = ?",
            (record.previous, record.tenant),
        ).fetchone()
        return (0, 0) if row is None else (row[0], row[1])

    def _thread(self, db: sqlite3.Connection, record: Record, now: float) -> int:
        """That of the response before, or of the conversation; else a new one."""
        for table, wanted in (("responses", record.previous), ("conversations", record.conversation)):
            row = db.execute(
                f"SELECT thread FROM {table} WHERE id = ? AND tenant = ?", (wanted, record.tenant)
            ).fetchone()
            if row is not None:
                return int(row[0])
        return self._new_thread(db, record.tenant, now)

    def _new_thread(self, db: sqlite3.Connection, tenant: str, now: float) -> int:
        made = db.execute(
            "INSERT INTO threads(tenant, used, expires) VALUES (?, ?, ?)",
            (tenant, now, now + self._settings.ttl_s),
        ).lastrowid
        assert made is not None
        return made

    def _use(self, db: sqlite3.Connection, thread: int, now: float) -> None:
        db.execute(
            "UPDATE threads SET used = ?, expires = ? WHERE id = ?", (now, now + self._settings.ttl_s, thread)
        )

    def delete(self, tenant: str, response_id: str, now: float) -> Absence | None:
        with self._transaction() as db:
            found = record_of(db, tenant, response_id, now)
            if found.record is None:
                return found.absence
            (thread,) = db.execute("SELECT thread FROM responses WHERE id = ?", (response_id,)).fetchone()
            db.execute("DELETE FROM responses WHERE id = ?", (response_id,))
            self._gone(db, response_id, tenant, now)
            self._room.grow(db, thread, tenant, -1, -found.record.size)
            self._drop_if_empty(db, thread)
            return None

    def _drop_if_empty(self, db: sqlite3.Connection, thread: int) -> None:
        db.execute("DELETE FROM threads WHERE id = ? AND entries <= 0", (thread,))

    def _gone(self, db: sqlite3.Connection, wanted: str, tenant: str, now: float) -> None:
        db.execute(
            "INSERT OR REPLACE INTO gone VALUES (?, ?, ?, ?)", (wanted, tenant, str(Absence.DELETED), now)
        )

    def cancel(self, tenant: str, response_id: str, now: float) -> Found:
        with self._transaction() as db:
            found = record_of(db, tenant, response_id, now)
            record = found.record
            if record is None or record.status not in UNFINISHED:
                return found
            response = with_status(record.response, "cancelled")
            db.execute(
                "UPDATE responses SET status = 'cancelled', response = ? WHERE id = ?",
                (response, response_id),
            )
            return record_of(db, tenant, response_id, now)

    def beat(self, owner: str, running: Sequence[str], now: float) -> list[str]:
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (owner, now))
            over = []
            for each in running:
                row = db.execute("SELECT status FROM responses WHERE id = ?", (each,)).fetchone()
                if row is None or row[0] not in UNFINISHED:
                    over.append(each)
            return over

    # ---- conversations ----

    def create_conversation(
        self, tenant: str, conversation: Conversation, items: Sequence[NewItem], now: float
    ) -> Outcome:
        if not self._room.has_disk():
            return Outcome.FULL
        try:
            with self._transaction() as db:
                if conversation_of(db, tenant, conversation.id, now).conversation is not None:
                    return Outcome.STORED  # a repeated call
                thread = self._new_thread(db, tenant, now)
                db.execute(
                    "INSERT INTO conversations(id, tenant, thread, created, metadata) VALUES (?, ?, ?, ?, ?)",
                    (conversation.id, tenant, thread, conversation.created, conversation.metadata),
                )
                self._room.grow(db, thread, tenant, 1, len(conversation.metadata))
                self._add_items(db, tenant, conversation.id, items)
                if not self._room.make_room(db, tenant, thread, now):
                    raise NoRoom
                return Outcome.STORED
        except NoRoom:
            return Outcome.FULL

    def set_metadata(
        self, tenant: str, conversation_id: str, metadata: bytes, now: float
    ) -> FoundConversation:
        with self._transaction() as db:
            if conversation_of(db, tenant, conversation_id, now).conversation is not None:
                db.execute("UPDATE conversations SET metadata = ? WHERE id = ?", (metadata, conversation_id))
            return conversation_of(db, tenant, conversation_id, now)

    def delete_conversation(self, tenant: str, conversation_id: str, now: float) -> Absence | None:
        with self._transaction() as db:
            found = conversation_of(db, tenant, conversation_id, now)
            if found.conversation is None:
                return found.absence
            thread, size = self._place(db, conversation_id)
            db.execute("DELETE FROM items WHERE conversation = ?", (conversation_id,))
            db.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
            self._gone(db, conversation_id, tenant, now)
            self._room.grow(db, thread, tenant, -1, -size - len(found.conversation.metadata))
            self._drop_if_empty(db, thread)
            return None

    def add_items(self, tenant: str, conversation_id: str, items: Sequence[NewItem], now: float) -> Added:
        if not self._room.has_disk():
            return Added(Outcome.FULL)
        try:
            with self._transaction() as db:
                found = conversation_of(db, tenant, conversation_id, now)
                if found.conversation is None:
                    return Added(absence=found.absence)
                thread, _ = self._place(db, conversation_id)
                self._add_items(db, tenant, conversation_id, items)
                self._use(db, thread, now)
                if not self._room.make_room(db, tenant, thread, now):
                    raise NoRoom
                return Added(Outcome.STORED)
        except NoRoom:
            return Added(Outcome.FULL)

    def delete_item(self, tenant: str, conversation_id: str, item_id: str, now: float) -> Absence | None:
        with self._transaction() as db:
            found = conversation_of(db, tenant, conversation_id, now)
            if found.conversation is None:
                return found.absence
            where = (conversation_id, item_id)
            row = db.execute(
                "SELECT length(item) FROM items WHERE conversation = ? AND id = ?", where
            ).fetchone()
            if row is None:
                return Absence.UNKNOWN
            db.execute("DELETE FROM items WHERE conversation = ? AND id = ?", where)
            self._grow_conversation(db, tenant, conversation_id, -row[0])
            return None

    def _add_items(
        self, db: sqlite3.Connection, tenant: str, conversation_id: str, items: Sequence[NewItem]
    ) -> None:
        """Each at most once: a call may be repeated. The conversation may have been deleted meanwhile."""
        known = db.execute(
            "SELECT 1 FROM conversations WHERE id = ? AND tenant = ?", (conversation_id, tenant)
        ).fetchone()
        if known is None:
            return
        added = 0
        for new in items:
            done = db.execute(
                "INSERT OR IGNORE INTO items(conversation, id, item) VALUES (?, ?, ?)",
                (conversation_id, new.id, new.item),
            )
            added += len(new.item) if done.rowcount else 0
        self._grow_conversation(db, tenant, conversation_id, added)

    def _grow_conversation(
        self, db: sqlite3.Connection, tenant: str, conversation_id: str, size: int
    ) -> None:
        thread, _ = self._place(db, conversation_id)
        db.execute("UPDATE conversations SET bytes = bytes + ? WHERE id = ?", (size, conversation_id))
        self._room.grow(db, thread, tenant, 0, size)

    def _place(self, db: sqlite3.Connection, conversation_id: str) -> tuple[int, int]:
        """Its thread, and the size of its items."""
        row = db.execute(
            "SELECT thread, bytes FROM conversations WHERE id = ?", (conversation_id,)
        ).fetchone()
        return int(row[0]), int(row[1])

    def sweep(self, now: float) -> bool:
        """Remove some of what has expired; whether there is more."""
        with self._transaction() as db:
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
