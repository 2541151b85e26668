"""Reports of gateways in the database: each is applied once, all of it or nothing."""

from __future__ import annotations

from deployments.accounts.store.base import Sql
from deployments.accounts.store.usage import add_usage
from serve_app.accounts.exchange import Report

FORGOTTEN_AFTER_S = 86_400.0
"""A gateway that has not reported for so long has ended: each has a new name."""


def apply(db: Sql, report: Report, now: float) -> None:
    """Inside a transaction. A report that was applied changes nothing when it comes again. What a report
    holds besides its question for changes is written here, part by part."""
    row = db.execute("SELECT seq FROM gateways WHERE gateway=?", (report.gateway,)).fetchone()
    if row is not None and row[0] >= report.seq:
        return
    db.execute(
        "INSERT INTO gateways VALUES(?, ?, ?) "
        "ON CONFLICT(gateway) DO UPDATE SET seq=excluded.seq, seen=excluded.seen",
        (report.gateway, report.seq, now),
    )
    add_usage(db, report.usage)
    if row is None:
        db.execute("DELETE FROM gateways WHERE seen < ?", (now - FORGOTTEN_AFTER_S,))
