"""Feedback in the SQLite file: each function is one short piece of work on one connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from deployments.feedback.store.captures import asked_in_capture
from deployments.feedback.store.seal import Seal
from serve_app.feedback.values import (
    Feedback,
    FeedbackPage,
    FeedbackQuery,
    Judged,
    Kept,
    Outcome,
    Said,
)

PAGE_BYTES = 4 << 20
SWEPT = 2000
"""Rows that one transaction removes, some 20 ms: writers wait no longer."""

JUDGED = msgspec.msgpack.Decoder(Judged)
SAID = msgspec.msgpack.Decoder(Said)


def report(db: sqlite3.Connection, requests: Sequence[Judged]) -> None:
    """Inside a transaction. Clients choose ids: of two with the same one, the newest is meant."""
    rows = [(each.tenant, each.request_id, each.at, msgspec.msgpack.encode(each)) for each in requests]
    db.executemany("INSERT OR REPLACE INTO requests VALUES(?, ?, ?, ?)", rows)


def say(db: sqlite3.Connection, seal: Seal | None, feedback: tuple[str, str, str, Said], now: float) -> Kept:
    """Inside a transaction."""
    tenant, request_id, author, said = feedback
    row = db.execute("SELECT body FROM requests WHERE tenant=? AND id=?", (tenant, request_id)).fetchone()
    if row is None:
        return Kept(Outcome.UNKNOWN)
    request = JUDGED.decode(row[0])
    key = (tenant, request_id, author)
    before = db.execute(
        "SELECT negative FROM feedback WHERE tenant=? AND request=? AND author=?", key
    ).fetchone()
    plain = msgspec.msgpack.encode(said)
    kept = plain if seal is None else seal.seal(tenant, plain, _context(*key))
    db.execute("DELETE FROM feedback WHERE tenant=? AND request=? AND author=?", key)
    db.execute(
        "INSERT INTO feedback(tenant, request, author, at, model, negative, corrected, asked, said, sealed) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *key,
            now,
            request.model,
            said.is_negative,
            said.correction is not None,
            row[0],
            kept,
            seal is not None,
        ),
    )
    if before is None:
        return Kept(Outcome.KEPT, request)
    return Kept(Outcome.REPLACED, request, was_negative=bool(before[0]))


def page(db: sqlite3.Connection, seal: Seal | None, query: FeedbackQuery) -> FeedbackPage:
    """What no key opens is left out. A page ends behind what exceeds its bytes: with a correction comes what
    was asked."""
    wanted = {
        "tenant=?": query.tenant,
        "model=?": query.model,
        "request=?": query.request_id,
        "negative=?": query.negative,
        "corrected=?": query.corrected,
        "number<?": query.after,
    }
    given = {test: value for test, value in wanted.items() if value is not None}
    where = f"WHERE {' AND '.join(given)}" if given else ""
    rows = db.execute(
        "SELECT number, tenant, request, author, at, asked, said, sealed FROM feedback "
        f"{where} ORDER BY number DESC LIMIT ?",
        (*given.values(), query.limit + 1),
    ).fetchall()
    found: list[Feedback] = []
    size = 0
    for row in rows[: query.limit]:
        if size > PAGE_BYTES:
            return FeedbackPage(tuple(found), has_more=True)
        each = _feedback(db, row, seal)
        if each is not None:
            size += len(msgspec.msgpack.encode(each.said))
            found.append(each)
    return FeedbackPage(tuple(found), len(rows) > query.limit)


def erase(db: sqlite3.Connection, tenant: str, *, only_captures: bool) -> int:
    """Inside a transaction."""
    gone = db.execute("DELETE FROM captures WHERE tenant=?", (tenant,)).rowcount
    if only_captures:
        return gone
    gone += db.execute("DELETE FROM requests WHERE tenant=?", (tenant,)).rowcount
    return gone + db.execute("DELETE FROM feedback WHERE tenant=?", (tenant,)).rowcount


def sweep(db: sqlite3.Connection, *, said_before: float, asked_before: float, captured_before: float) -> bool:
    """Remove some of what is too old; whether there may be more. Inside a transaction."""
    said = db.execute(
        "DELETE FROM feedback WHERE number IN (SELECT number FROM feedback WHERE at<? LIMIT ?)",
        (said_before, SWEPT),
    ).rowcount
    asked = db.execute(
        "DELETE FROM requests WHERE (tenant, id) IN (SELECT tenant, id FROM requests WHERE at<? LIMIT ?)",
        (asked_before, SWEPT),
    ).rowcount
    captured = db.execute(
        "DELETE FROM captures WHERE number IN (SELECT number FROM captures WHERE at<? LIMIT ?)",
        (captured_before, SWEPT),
    ).rowcount
    return SWEPT in (said, asked, captured)


def make_room(db: sqlite3.Connection, *, most_requests: int, most_said: int) -> bool:
    """Remove some of what is too much, from those who have most; whether there may be more. Inside a
    transaction."""
    (count,) = db.execute("SELECT count(*) FROM requests").fetchone()
    again = False
    if count > most_requests:
        (tenant,) = db.execute(
            "SELECT tenant FROM requests GROUP BY tenant ORDER BY count(*) DESC LIMIT 1"
        ).fetchone()
        least = min(SWEPT, count - most_requests)
        db.execute(
            "DELETE FROM requests WHERE (tenant, id) IN "
            "(SELECT tenant, id FROM requests WHERE tenant=? ORDER BY at LIMIT ?)",
            (tenant, least),
        )
        again = count - least > most_requests
    over = db.execute(
        "SELECT tenant, count(*) FROM feedback GROUP BY tenant HAVING count(*) > ?", (most_said,)
    ).fetchall()
    for tenant, said in over:
        least = min(SWEPT, said - most_said)
        db.execute(
            "DELETE FROM feedback WHERE number IN "
            "(SELECT number FROM feedback WHERE tenant=? ORDER BY number LIMIT ?)",
            (tenant, least),
        )
        again = again or said - least > most_said
    return again


def _feedback(db: sqlite3.Connection, row: tuple[Any, ...], seal: Seal | None) -> Feedback | None:
    number, tenant, request_id, author, at, asked, said, sealed = row
    if sealed:
        opened = None if seal is None else seal.open(tenant, said, _context(tenant, request_id, author))
        if opened is None:
            return None
        said = opened
    given = SAID.decode(said)
    if given.correction is not None and given.messages is None and seal is not None:
        given = msgspec.structs.replace(given, messages=asked_in_capture(db, seal, tenant, request_id))
    return Feedback(
        tenant=tenant,
        request_id=request_id,
        author=author,
        at=at,
        said=given,
        request=JUDGED.decode(asked),
        number=number,
    )


def _context(tenant: str, request_id: str, author: str) -> bytes:
    """What binds a sealed text to its row."""
    return f"{tenant}\0{request_id}\0{author}".encode()
