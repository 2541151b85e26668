"""Limits in the database, and what was used of budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from deployments.accounts.store.base import Sql
from serve_app.quotas.ledger import Total
from serve_app.quotas.limits import Bound, Limit
from serve_app.quotas.messages import LimitChanges

PAGE = 2000
KEPT_DAYS = 2
"""A day's use is needed until that day has ended in every zone, and the clock may step."""

FORGOTTEN_AFTER_S = 31 * 86_400.0
"""Over the longest month of a budget: so long a report counts once, however often its gateway repeats it
while the owner is away. Each gateway has a new name."""

_decoder = msgspec.json.Decoder(Limit)


def newest(db: Sql) -> int:
    """The number of the last change."""
    (version,) = db.execute("SELECT COALESCE(MAX(changed), 0) FROM limits").fetchone()
    return int(version)


def everything(db: Sql) -> list[Limit]:
    return [_decoder.decode(body) for (body,) in db.execute("SELECT body FROM limits WHERE body IS NOT NULL")]


def put(db: Sql, limit: Limit) -> int:
    """Inside a transaction. Returns the number of the change."""
    version = newest(db) + 1
    db.execute(
        "INSERT INTO limits VALUES(?, ?, ?) "
        "ON CONFLICT(scope) DO UPDATE SET changed=excluded.changed, body=excluded.body",
        (limit.scope, version, msgspec.json.encode(limit)),
    )
    return version


def remove(db: Sql, scope: str) -> int | None:
    """``None``: there was none. The row stays, so that gateways learn of it."""
    version = newest(db) + 1
    done = db.execute(
        "UPDATE limits SET changed=?, body=NULL WHERE scope=? AND body IS NOT NULL", (version, scope)
    )
    return version if done.rowcount else None


def changes(db: Sql, since: int) -> tuple[LimitChanges, bool]:
    """And whether there are more."""
    rows = db.execute(
        "SELECT scope, changed, body FROM limits WHERE changed > ? ORDER BY changed LIMIT ?", (since, PAGE)
    ).fetchall()
    found = LimitChanges(
        version=rows[-1][1] if rows else since,
        limits=tuple([_decoder.decode(body) for _, _, body in rows if body is not None]),
        removed=tuple([scope for scope, _, body in rows if body is None]),
        fresh=since == 0,
    )
    return found, len(rows) == PAGE


def write_used(db: Sql, totals: Iterable[Total], applied: Mapping[str, int], now: float) -> None:
    """Inside a transaction: what was used, and the reports that said so."""
    db.executemany(
        "INSERT INTO used VALUES(?, ?, ?, ?) "
        "ON CONFLICT(scope, bound, label) DO UPDATE SET amount=excluded.amount",
        [(total.scope, total.bound.value, total.label, total.amount) for total in totals],
    )
    db.executemany(
        "INSERT INTO leases VALUES(?, ?, ?) "
        "ON CONFLICT(gateway) DO UPDATE SET seq=excluded.seq, seen=excluded.seen",
        [(name, seq, now) for name, seq in applied.items()],
    )


def used(db: Sql, now: float) -> tuple[list[Total], dict[str, int]]:
    """What was used in days and months that may still be going on, and the last report of each gateway."""
    since = datetime.fromtimestamp(now, UTC) - timedelta(days=KEPT_DAYS)
    rows = db.execute(
        "SELECT scope, bound, label, amount FROM used "
        "WHERE (length(label)=10 AND label>=?) OR (length(label)=7 AND label>=?)",
        (f"{since:%Y-%m-%d}", f"{since:%Y-%m}"),
    )
    totals = [Total(scope, Bound(bound), label, amount) for scope, bound, label, amount in rows]
    return totals, dict(db.execute("SELECT gateway, seq FROM leases").fetchall())


def forget_gateways(db: Sql, now: float) -> None:
    """Inside a transaction. Those that have not reported for long."""
    db.execute("DELETE FROM leases WHERE seen < ?", (now - FORGOTTEN_AFTER_S,))
