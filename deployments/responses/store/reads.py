"""What is read of the SQLite file: responses, conversations and their items."""

from __future__ import annotations

import sqlite3
from typing import Any

from serve_app.stored_responses.status import LEASE_S, OWNER_GONE, with_status
from serve_app.stored_responses.values import (
    UNFINISHED,
    Absence,
    ChainBounds,
    Conversation,
    Found,
    FoundConversation,
    History,
    Listed,
    Part,
    Record,
)

ONE = """
SELECT r.id, r.tenant, r.status, r.response, r.previous, r.conversation, r.tokens, r.owner, t.expires
FROM responses r JOIN threads t ON t.id = r.thread WHERE r.id = ? AND r.tenant = ?
"""

CHAIN = """
WITH RECURSIVE chain(id, previous, depth, input, output) AS (
    SELECT id, previous, depth, input, output FROM responses WHERE id = ?1 AND tenant = ?2
    UNION ALL
    SELECT r.id, r.previous, r.depth, r.input, r.output FROM responses r JOIN chain c ON r.id = c.previous
    WHERE r.tenant = ?2
) SELECT id, input, output FROM chain ORDER BY depth
"""

HEAD = """
SELECT r.depth, r.chain_bytes, r.tokens, r.status, t.expires
FROM responses r JOIN threads t ON t.id = r.thread WHERE r.id = ? AND r.tenant = ?
"""

STATUS = """
SELECT r.status, r.owner, t.expires
FROM responses r JOIN threads t ON t.id = r.thread WHERE r.id = ? AND r.tenant = ?
"""

OWN = """
SELECT r.input, r.output, t.expires
FROM responses r JOIN threads t ON t.id = r.thread WHERE r.id = ? AND r.tenant = ?
"""

CONVERSATION = """
SELECT c.id, c.created, c.metadata, c.bytes, t.expires
FROM conversations c JOIN threads t ON t.id = c.thread WHERE c.id = ? AND c.tenant = ?
"""


def record_of(db: sqlite3.Connection, tenant: str, response_id: str, now: float) -> Found:
    row = db.execute(ONE, (response_id, tenant)).fetchone()
    if row is None or row[-1] <= now:
        return Found(absence=absence_of(db, tenant, response_id, expired=row is not None))
    record = Record(
        id=row[0],
        tenant=row[1],
        status=row[2],
        response=row[3],
        previous=row[4],
        conversation=row[5],
        tokens=row[6],
        owner=row[7],
    )
    return Found(_as_it_is(db, record, now))


def _as_it_is(db: sqlite3.Connection, record: Record, now: float) -> Record:
    """An unfinished response whose owner is gone has failed, whatever the file says."""
    if record.status not in UNFINISHED or _lives(db, record.owner, now):
        return record
    return _changed(record, "failed", OWNER_GONE)


def _lives(db: sqlite3.Connection, owner: str | None, now: float) -> bool:
    if owner is None:
        return True
    seen = db.execute("SELECT seen FROM owners WHERE owner = ?", (owner,)).fetchone()
    return seen is not None and seen[0] + LEASE_S > now


def status_of(db: sqlite3.Connection, tenant: str, response_id: str, now: float) -> str | None:
    """``None`` if it is not there. It reads nothing of what is large: clients ask again and again."""
    row = db.execute(STATUS, (response_id, tenant)).fetchone()
    if row is None or row[2] <= now:
        return None
    status, owner, _ = row
    return "failed" if status in UNFINISHED and not _lives(db, owner, now) else str(status)


def _changed(record: Record, status: str, error: dict[str, Any]) -> Record:
    return Record(
        id=record.id,
        tenant=record.tenant,
        status=status,
        response=with_status(record.response, status, error),
        previous=record.previous,
        conversation=record.conversation,
        tokens=record.tokens,
    )


def absence_of(db: sqlite3.Connection, tenant: str, wanted: str, *, expired: bool = False) -> Absence:
    if expired:
        return Absence.EXPIRED
    row = db.execute("SELECT why FROM gone WHERE id = ? AND tenant = ?", (wanted, tenant)).fetchone()
    return Absence.UNKNOWN if row is None else Absence(row[0])


def history_of(
    db: sqlite3.Connection, tenant: str, response_id: str, bounds: ChainBounds, now: float
) -> History:
    head = db.execute(HEAD, (response_id, tenant)).fetchone()
    if head is None or head[4] <= now:
        return History(absence=absence_of(db, tenant, response_id, expired=head is not None))
    depth, size, tokens, status, _ = head
    known = History(depth=depth, size=size, tokens=tokens, status=status)
    if bounds.exceeded(known) is not None or status in UNFINISHED:
        return known
    rows = db.execute(CHAIN, (response_id, tenant)).fetchall()
    parts = [part for _, *said in rows for part in said]
    first = rows[0][0] if rows else None
    return History(parts, None, depth, size, tokens, status, broken=len(rows) != depth, first=first)


def own_items_of(
    db: sqlite3.Connection, tenant: str, response_id: str, with_input: bool, now: float
) -> History:
    row = db.execute(OWN, (response_id, tenant)).fetchone()
    if row is None or row[2] <= now:
        return History(absence=absence_of(db, tenant, response_id, expired=row is not None))
    parts = list(row[:2] if with_input else row[1:2])
    return History(parts, depth=1, size=sum(map(len, parts)))


def record_bytes(db: sqlite3.Connection, tenant: str, response_id: str) -> int:
    return _number(db, "SELECT size FROM responses WHERE id = ? AND tenant = ?", tenant, response_id)


def chain_bytes(db: sqlite3.Connection, tenant: str, response_id: str) -> int:
    return _number(db, "SELECT chain_bytes FROM responses WHERE id = ? AND tenant = ?", tenant, response_id)


def conversation_bytes(db: sqlite3.Connection, tenant: str, conversation_id: str) -> int:
    return _number(db, "SELECT bytes FROM conversations WHERE id = ? AND tenant = ?", tenant, conversation_id)


def _number(db: sqlite3.Connection, query: str, tenant: str, wanted: str) -> int:
    """0 where there is none."""
    row = db.execute(query, (wanted, tenant)).fetchone()
    return 0 if row is None else int(row[0])


def conversation_of(
    db: sqlite3.Connection, tenant: str, conversation_id: str, now: float
) -> FoundConversation:
    row = db.execute(CONVERSATION, (conversation_id, tenant)).fetchone()
    if row is None or row[4] <= now:
        return FoundConversation(absence=absence_of(db, tenant, conversation_id, expired=row is not None))
    return FoundConversation(Conversation(id=row[0], created=row[1], metadata=row[2]))


def items_of(
    db: sqlite3.Connection, tenant: str, conversation_id: str, bounds: ChainBounds, now: float
) -> History:
    row = db.execute(CONVERSATION, (conversation_id, tenant)).fetchone()
    if row is None or row[4] <= now:
        return History(absence=absence_of(db, tenant, conversation_id, expired=row is not None))
    known = History(size=row[3])
    if bounds.exceeded(known) is not None:
        return known
    query = "SELECT item FROM items WHERE conversation = ? ORDER BY position"
    return History([item for (item,) in db.execute(query, (conversation_id,))], size=row[3])


def listed_of(
    db: sqlite3.Connection, tenant: str, conversation_id: str, part: Part, now: float, *, most_bytes: int
) -> Listed:
    """Some of the items, of at most ``most_bytes`` together (or one)."""
    found = conversation_of(db, tenant, conversation_id, now)
    if found.conversation is None:
        return Listed(absence=found.absence)
    where, values = "conversation = ?", [conversation_id]
    if part.after is not None:
        place = db.execute(PLACE_OF_ITEM, (conversation_id, part.after)).fetchone()
        if place is None:
            return Listed(absence=Absence.UNKNOWN, after_is_unknown=True)
        where += f" AND position {'<' if part.newest_first else '>'} {int(place[0])}"
    order = "DESC" if part.newest_first else "ASC"
    rows = db.execute(f"SELECT item FROM items WHERE {where} ORDER BY position {order}", values)
    items: list[bytes] = []
    size = 0
    for (item,) in rows:
        size += len(item)
        if items and (len(items) == part.limit or size > most_bytes):
            return Listed(items, has_more=True)
        items.append(item)
    return Listed(items)


PLACE_OF_ITEM = "SELECT position FROM items WHERE conversation = ? AND id = ?"
ITEM = "SELECT item FROM items WHERE conversation = ? AND id = ?"


def item_of(db: sqlite3.Connection, tenant: str, conversation_id: str, item_id: str, now: float) -> Listed:
    """One item; none of that id: an empty list."""
    found = conversation_of(db, tenant, conversation_id, now)
    if found.conversation is None:
        return Listed(absence=found.absence)
    return Listed([item for (item,) in db.execute(ITEM, (conversation_id, item_id))])
