"""Refused users in the database. There are few: a gateway that learns of a change takes all of them."""

from __future__ import annotations

import secrets

import msgspec

from deployments.accounts.store.base import Sql
from serve_app.accounts.keys import Outcome
from serve_app.accounts.refused import MOST, MOST_OF_TENANT, Refused, RefusedUser

VERSION = "refused_users"
"""The version of all of them: drawn again at each change, so that a restored file has another one."""

_decoder = msgspec.json.Decoder(RefusedUser)


def version(db: Sql) -> str:
    row = db.execute("SELECT value FROM meta WHERE name=?", (VERSION,)).fetchone()
    return "" if row is None else str(row[0])


def everyone(db: Sql) -> Refused:
    """The version is read first: users of a later one are given again."""
    known = version(db)
    rows = db.execute('SELECT body FROM refused_users ORDER BY tenant, "user"').fetchall()
    return Refused(known, tuple([_decoder.decode(body) for (body,) in rows]))


def refuse(db: Sql, user: RefusedUser) -> Outcome:
    """Inside a transaction. What an administrator of the application has refused stays so."""
    known = _one(db, user.tenant, user.user)
    if known is not None and (known.holds_admins or not user.holds_admins):
        return Outcome.KEPT
    if known is None and _is_full(db, user.tenant):
        return Outcome.FULL
    db.execute(
        "INSERT INTO refused_users VALUES(?, ?, ?) "
        'ON CONFLICT(tenant, "user") DO UPDATE SET body=excluded.body',
        (user.tenant, user.user, msgspec.json.encode(user)),
    )
    _count(db)
    return Outcome.KEPT


def let_in(db: Sql, tenant: str, user: str, is_admin: bool) -> Outcome:
    """Inside a transaction. ``CONFLICT``: only an administrator of the application may."""
    known = _one(db, tenant, user)
    if known is None:
        return Outcome.ABSENT
    if known.holds_admins and not is_admin:
        return Outcome.CONFLICT
    db.execute('DELETE FROM refused_users WHERE tenant=? AND "user"=?', (tenant, user))
    _count(db)
    return Outcome.KEPT


def _one(db: Sql, tenant: str, user: str) -> RefusedUser | None:
    row = db.execute('SELECT body FROM refused_users WHERE tenant=? AND "user"=?', (tenant, user)).fetchone()
    return None if row is None else _decoder.decode(row[0])


def _is_full(db: Sql, tenant: str) -> bool:
    (of_tenant,) = db.execute("SELECT count(*) FROM refused_users WHERE tenant=?", (tenant,)).fetchone()
    (count,) = db.execute("SELECT count(*) FROM refused_users").fetchone()
    return bool(of_tenant >= MOST_OF_TENANT or count >= MOST)


def _count(db: Sql) -> None:
    db.execute(
        "INSERT INTO meta VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value=excluded.value",
        (VERSION, secrets.token_hex(8)),
    )
