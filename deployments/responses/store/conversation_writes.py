"""What changes conversations: each public method but ``insert`` is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from deployments.responses.store.reads import ITEM, conversation_of
from deployments.responses.store.room import Room
from deployments.responses.store.threads import NoRoom, Threads
from serve_app.stored_responses.values import (
    Absence,
    Added,
    Conversation,
    FoundConversation,
    NewItem,
    Outcome,
)


class ConversationWrites:
    """All calls run on the one thread that writes. It is one class because each method is one transaction
    on the same tables."""

    def __init__(self, threads: Threads, room: Room) -> None:
        self._threads = threads
        self._room = room

    def create(
        self, tenant: str, conversation: Conversation, items: Sequence[NewItem], now: float
    ) -> Outcome:
        if not self._room.has_disk():
            return Outcome.FULL
        try:
            with self._threads.transaction() as db:
                if conversation_of(db, tenant, conversation.id, now).conversation is not None:
                    return Outcome.STORED  # a repeated call
                thread = self._threads.new(db, tenant, now)
                db.execute(
                    "INSERT INTO conversations(id, tenant, thread, created, metadata) VALUES (?, ?, ?, ?, ?)",
                    (conversation.id, tenant, thread, conversation.created, conversation.metadata),
                )
                self._room.grow(db, thread, tenant, 1, len(conversation.metadata))
                self.insert(db, tenant, conversation.id, items)
                if not self._room.make_room(db, tenant, thread, now):
                    raise NoRoom
                return Outcome.STORED
        except NoRoom:
            return Outcome.FULL

    def set_metadata(
        self, tenant: str, conversation_id: str, metadata: bytes, now: float
    ) -> FoundConversation:
        if not self._room.has_disk():
            return FoundConversation(is_full=True)
        try:
            with self._threads.transaction() as db:
                found = conversation_of(db, tenant, conversation_id, now)
                if found.conversation is None:
                    return found
                thread, _ = self._place(db, conversation_id)
                db.execute("UPDATE conversations SET metadata = ? WHERE id = ?", (metadata, conversation_id))
                grown = len(metadata) - len(found.conversation.metadata)
                self._room.grow(db, thread, tenant, 0, grown)
                if not self._room.make_room(db, tenant, thread, now):
                    raise NoRoom
                return conversation_of(db, tenant, conversation_id, now)
        except NoRoom:
            return FoundConversation(is_full=True)

    def delete(self, tenant: str, conversation_id: str, now: float) -> Absence | None:
        with self._threads.transaction() as db:
            found = conversation_of(db, tenant, conversation_id, now)
            if found.conversation is None:
                return found.absence
            thread, size = self._place(db, conversation_id)
            db.execute("DELETE FROM items WHERE conversation = ?", (conversation_id,))
            db.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
            self._threads.note_deleted(db, conversation_id, tenant, now)
            self._room.grow(db, thread, tenant, -1, -size - len(found.conversation.metadata))
            self._threads.drop_if_empty(db, thread)
            return None

    def add_items(self, tenant: str, conversation_id: str, items: Sequence[NewItem], now: float) -> Added:
        if not self._room.has_disk():
            return Added(Outcome.FULL)
        try:
            with self._threads.transaction() as db:
                found = conversation_of(db, tenant, conversation_id, now)
                if found.conversation is None:
                    return Added(absence=found.absence)
                thread, _ = self._place(db, conversation_id)
                ids = self.insert(db, tenant, conversation_id, items)
                self._threads.use(db, thread, now)
                if not self._room.make_room(db, tenant, thread, now):
                    raise NoRoom
                return Added(Outcome.STORED, ids=ids)
        except NoRoom:
            return Added(Outcome.FULL)

    def delete_item(self, tenant: str, conversation_id: str, item_id: str, now: float) -> Absence | None:
        with self._threads.transaction() as db:
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
            self._grow(db, tenant, conversation_id, -row[0])
            return None

    def insert(
        self, db: sqlite3.Connection, tenant: str, conversation_id: str, items: Sequence[NewItem]
    ) -> list[str]:
        """Each at most once: a call may be repeated. Returns their ids. The conversation may have been
        deleted meanwhile."""
        known = db.execute(
            "SELECT 1 FROM conversations WHERE id = ? AND tenant = ?", (conversation_id, tenant)
        ).fetchone()
        if known is None:
            return []
        added = 0
        ids = []
        for given in items:
            new = self._as_new(db, conversation_id, given)
            done = db.execute(
                "INSERT OR IGNORE INTO items(conversation, id, item) VALUES (?, ?, ?)",
                (conversation_id, new.id, new.item),
            )
            added += len(new.item) if done.rowcount else 0
            ids.append(new.id)
        self._grow(db, tenant, conversation_id, added)
        return ids

    def _as_new(self, db: sqlite3.Connection, conversation_id: str, new: NewItem) -> NewItem:
        """Under its spare id where another item has its own."""
        if not new.spare:
            return new
        row = db.execute(ITEM, (conversation_id, new.id)).fetchone()
        if row is None or row[0] == new.item:
            return new
        fields = msgspec.json.decode(new.item)
        return NewItem(new.spare, msgspec.json.encode({**fields, "id": new.spare}))

    def _grow(self, db: sqlite3.Connection, tenant: str, conversation_id: str, size: int) -> None:
        thread, _ = self._place(db, conversation_id)
        db.execute("UPDATE conversations SET bytes = bytes + ? WHERE id = ?", (size, conversation_id))
        self._room.grow(db, thread, tenant, 0, size)

    def _place(self, db: sqlite3.Connection, conversation_id: str) -> tuple[int, int]:
        """Its thread, and the size of its items."""
        row = db.execute(
            "SELECT thread, bytes FROM conversations WHERE id = ?", (conversation_id,)
        ).fetchone()
        return int(row[0]), int(row[1])
