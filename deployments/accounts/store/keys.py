"""Keys in the database: each call is one short piece of work on one connection."""

from __future__ import annotations

from typing import Any

import msgspec

from deployments.accounts.store.base import Sql
from serve_app.accounts.exchange import PAGE, Changes, Report
from serve_app.accounts.keys import Kept, KeyPage, KeyQuery, ManagedKey, Outcome, State
from serve_app.request.auth import KeyRecord

DECODER = msgspec.json.Decoder(ManagedKey)
"""JSON, so that a person can read the file with the tools that there are."""


PUT = (
    "INSERT INTO keys VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET tenant=excluded.tenant, "
    '"user"=excluded."user", revoked=excluded.revoked, changed=excluded.changed, key=excluded.key'
)

FORGOTTEN = "keys_forgotten"
"""The newest change of a revoked key that is no longer in the file."""


def make(db: Sql, key: ManagedKey, most: int, most_of_tenant: int) -> Kept:
    """Inside a transaction. ``most``: keys that are kept. The oldest revoked one makes room for a new one."""
    known = one(db, key.record.id)
    if known is not None:
        return Kept(Outcome.KEPT if known == key else Outcome.CONFLICT, known)
    tenant = key.record.tenant
    (of_tenant,) = db.execute("SELECT count(*) FROM keys WHERE tenant=?", (tenant,)).fetchone()
    if of_tenant >= most_of_tenant and not _forget_one(db, "AND tenant=?", tenant):
        return Kept(Outcome.FULL)
    (count,) = db.execute("SELECT count(*) FROM keys").fetchone()
    if count >= most and not _forget_one(db):
        return Kept(Outcome.FULL)
    write(db, key)
    return Kept(Outcome.KEPT, key)


def change(db: Sql, key: ManagedKey) -> Kept:
    """Inside a transaction."""
    known = one(db, key.record.id)
    if known is None:
        return Kept(Outcome.ABSENT)
    if known == key:
        return Kept(Outcome.KEPT, known)
    if known.version + 1 != key.version:
        return Kept(Outcome.CONFLICT, known)
    write(db, key)
    return Kept(Outcome.KEPT, key)


def one(db: Sql, key_id: str) -> ManagedKey | None:
    row = db.execute("SELECT key FROM keys WHERE id=?", (key_id,)).fetchone()
    return None if row is None else DECODER.decode(row[0])


def page(db: Sql, query: KeyQuery) -> KeyPage:
    conditions, values = ["id > ?"], [query.after]
    for column, value in (("tenant", query.tenant), ("user", query.user)):
        if value is not None:
            conditions.append(f'"{column}" = ?')
            values.append(value)
    if query.state is not State.ANY:
        conditions.append("revoked = 1" if query.state is State.REVOKED else "revoked = 0")
    statement = f"SELECT key FROM keys WHERE {' AND '.join(conditions)} ORDER BY id LIMIT ?"
    rows = db.execute(statement, (*values, query.limit + 1)).fetchall()
    keys = tuple(DECODER.decode(key) for (key,) in rows[: query.limit])
    return KeyPage(keys, has_more=len(rows) > query.limit)


def changes(db: Sql, report: Report, store: str) -> Changes:
    """A gateway that knows another file, or a later state of this one (it was restored), gets all keys."""
    newest, forgotten = last_change(db), _forgotten(db)
    missed = report.keys_version < forgotten and report.keys_forgotten != forgotten
    fresh = report.store != store or report.keys_version > newest or missed
    since = 0 if fresh else report.keys_version
    if not fresh and since == newest:
        return Changes(store=store, keys_version=newest, keys_forgotten=forgotten)
    rows: list[Any] = db.execute(
        "SELECT changed, revoked, key FROM keys WHERE changed > ? ORDER BY changed LIMIT ?", (since, PAGE)
    ).fetchall()
    records: list[KeyRecord] = []
    revoked: list[str] = []
    for _, is_revoked, key in rows:
        record = DECODER.decode(key).record
        if is_revoked:
            revoked.append(record.id)
        else:
            records.append(record)
    more = len(rows) == PAGE
    version = rows[-1][0] if more else newest
    return Changes(
        store=store,
        keys_version=version,
        keys=tuple(records),
        revoked=tuple(revoked),
        fresh=fresh,
        more=more,
        keys_forgotten=forgotten,
    )


def last_change(db: Sql) -> int:
    (newest,) = db.execute("SELECT max(changed) FROM keys").fetchone()
    return max(int(newest or 0), _forgotten(db))


def _forgotten(db: Sql) -> int:
    row = db.execute("SELECT value FROM meta WHERE name=?", (FORGOTTEN,)).fetchone()
    return 0 if row is None else int(row[0])


def _forget_one(db: Sql, where: str = "", *values: str) -> bool:
    """Whether there was a revoked key to forget: the one that was revoked first."""
    row = db.execute(
        f"SELECT id, changed FROM keys WHERE revoked=1 {where} ORDER BY changed LIMIT 1", values
    ).fetchone()
    if row is None:
        return False
    key_id, changed = row
    db.execute("DELETE FROM keys WHERE id=?", (key_id,))
    forgotten = str(max(_forgotten(db), changed))
    db.execute(
        "INSERT INTO meta VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value=excluded.value",
        (FORGOTTEN, forgotten),
    )
    return True


def write(db: Sql, key: ManagedKey) -> None:
    """Inside a transaction: as the newest change."""
    record = key.record
    row = (record.id, record.tenant, record.user, int(key.revoked_at is not None), last_change(db) + 1)
    db.execute(PUT, (*row, msgspec.json.encode(key)))
