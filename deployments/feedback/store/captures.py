"""Captured requests in the SQLite file: each function is one short piece of work on one connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from deployments.feedback.store.seal import Seal
from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery, Content
from serve_app.feedback.values import Judged

PAGE_BYTES = 4 << 20
"""A page ends behind the capture that exceeds it."""

CONTENT = msgspec.msgpack.Decoder(Content)
JUDGED = msgspec.msgpack.Decoder(Judged)


def bytes_used(db: sqlite3.Connection) -> int:
    """Bytes of all captures. It reads every row's size, tenths of a second for a gigabyte."""
    (used,) = db.execute("SELECT coalesce(sum(size), 0) FROM captures").fetchone()
    return int(used)


def capture(db: sqlite3.Connection, seal: Seal, captures: Sequence[Capture], room: int) -> int | None:
    """The bytes that they take; ``None``: they need more than ``room``. Inside a transaction."""
    rows = []
    for each in captures:
        secret = seal.seal(each.tenant, each.content, _context(each.tenant, each.request_id))
        rows.append((each.tenant, each.request_id, each.at, each.endpoint, each.model, len(secret), secret))
    size = sum(row[5] for row in rows)
    if size > room:
        return None
    db.executemany(
        "INSERT OR REPLACE INTO captures(tenant, id, at, endpoint, model, size, content) "
        "VALUES(?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    return size


def page(db: sqlite3.Connection, seal: Seal, query: CaptureQuery) -> CapturePage:
    """What no key opens is left out."""
    wanted = {"captures.tenant=?": query.tenant, "captures.model=?": query.model}
    given = {test: value for test, value in wanted.items() if value is not None}
    where = " AND ".join(["number>?", *given])
    rows = db.execute(
        "SELECT number, captures.tenant, captures.id, captures.at, endpoint, model, content, body "
        "FROM captures LEFT JOIN requests ON requests.tenant=captures.tenant AND requests.id=captures.id "
        f"WHERE {where} ORDER BY number {'DESC' if query.newest else 'ASC'} LIMIT ?",
        (query.after, *given.values(), query.limit + 1),
    )
    found: list[Capture] = []
    size, last = 0, query.after
    for seen, row in enumerate(rows):
        if seen == query.limit or size > PAGE_BYTES:
            return CapturePage(tuple(found), last)
        size += len(row[6])
        last = row[0]
        opened = _capture(row, seal)
        if opened is not None:
            found.append(opened)
    return CapturePage(tuple(found))


def asked_in_capture(
    db: sqlite3.Connection, seal: Seal, tenant: str, request_id: str
) -> list[dict[str, Any]] | None:
    """The messages of a captured request; ``None``: it was not captured, or had none."""
    row = db.execute("SELECT content FROM captures WHERE tenant=? AND id=?", (tenant, request_id)).fetchone()
    plain = None if row is None else seal.open(tenant, row[0], _context(tenant, request_id))
    messages = None if plain is None else CONTENT.decode(plain).request.get("messages")
    return messages if isinstance(messages, list) else None


def _capture(row: tuple[Any, ...], seal: Seal) -> Capture | None:
    number, tenant, request_id, at, endpoint, model, secret, known = row
    plain = seal.open(tenant, secret, _context(tenant, request_id))
    if plain is None:
        return None
    return Capture(
        tenant=tenant,
        request_id=request_id,
        at=at,
        endpoint=endpoint,
        model=model,
        content=plain,
        request=None if known is None else JUDGED.decode(known),
        number=number,
    )


def _context(tenant: str, request_id: str) -> bytes:
    return f"capture\0{tenant}\0{request_id}".encode()
