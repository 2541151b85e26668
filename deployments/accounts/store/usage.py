"""The table of usage in the owner's database. Functions run in the thread that owns their connection."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from deployments.accounts.store.base import Sql
from serve_app.usage import Counts, UsagePage, UsageQuery, UsageRow
from serve_app.usage.query import FILTERS
from serve_app.usage.rows import COUNTS, DIMENSIONS, WHOLE, UsageGroup

QUOTED = ", ".join(f'"{name}"' for name in DIMENSIONS)

USAGE_TABLES = f"""
CREATE TABLE IF NOT EXISTS usage(
    day TEXT NOT NULL, tenant TEXT NOT NULL, key TEXT NOT NULL, "user" TEXT NOT NULL, model TEXT NOT NULL,
    {", ".join(f"{name} {'INTEGER' if name in WHOLE else 'REAL'} NOT NULL" for name in COUNTS)},
    PRIMARY KEY({QUOTED})) WITHOUT ROWID;
"""

ADD = (
    f"INSERT INTO usage({QUOTED}, {', '.join(COUNTS)}) "
    f"VALUES({', '.join('?' * (len(DIMENSIONS) + len(COUNTS)))}) "
    f"ON CONFLICT({QUOTED}) DO UPDATE SET "
    + ", ".join(f"{name} = usage.{name} + excluded.{name}" for name in COUNTS)
)

SUMS = ", ".join(
    f"CAST(sum({name}) AS {'BIGINT' if name in WHOLE else 'DOUBLE PRECISION'})" for name in COUNTS
)
"""Postgres has a sum of whole numbers as a decimal."""

COLUMNS = {**{name: f'"{name}"' for name in DIMENSIONS}, "month": "substr(day, 1, 7)"}
"""What each name that a query may group by means in SQL."""

SWEPT_ROWS = 10_000
"""Rows that one step removes: some 20 ms, in which nothing else is written."""


def add_usage(connection: Sql, rows: Sequence[UsageRow]) -> None:
    """Within a transaction of the caller's."""
    connection.executemany(
        ADD,
        [(each.day, each.tenant, each.key, each.user, each.model, *each.counts.values()) for each in rows],
    )


def find_usage(connection: Sql, query: UsageQuery) -> UsagePage:
    """Newest days first where the groups have a day or a month; else the largest by requests."""
    where, values = _conditions(query)
    columns = [COLUMNS[name] for name in query.by]
    listed = "".join(f"{column}, " for column in columns)
    grouped = f"GROUP BY {', '.join(columns)}" if columns else ""
    order = ", ".join(
        [f"{COLUMNS[name]} DESC" for name in query.by if name in ("day", "month")] + ["sum(requests) DESC"]
    )
    found = connection.execute(
        f"SELECT {listed}{SUMS} FROM usage {where} {grouped} ORDER BY {order} LIMIT ?",
        (*values, query.limit + 1),
    ).fetchall()
    total = connection.execute(f"SELECT {SUMS} FROM usage {where}", values).fetchone()
    width = len(columns)
    groups = [UsageGroup(tuple(row[:width]), _counts(row[width:])) for row in found if row[width] is not None]
    return UsagePage(groups[: query.limit], _counts(total), len(groups) > query.limit)


def sweep_usage(connection: Sql, before_day: str, most_rows: int) -> int:
    """Remove a part of the rows of days before ``before_day``, and then of the oldest days while there are
    more than ``most_rows``; returns how many. Call it until it returns 0."""
    (count,) = connection.execute("SELECT count(*) FROM usage").fetchone()
    excess = min(max(0, count - most_rows), SWEPT_ROWS)
    removed: int = connection.execute(
        f"DELETE FROM usage WHERE ({QUOTED}) IN "
        f"(SELECT {QUOTED} FROM usage WHERE day < ? ORDER BY day LIMIT {SWEPT_ROWS})",
        (before_day,),
    ).rowcount
    if removed == 0 and excess:
        removed = connection.execute(
            f"DELETE FROM usage WHERE ({QUOTED}) IN (SELECT {QUOTED} FROM usage ORDER BY day LIMIT ?)",
            (excess,),
        ).rowcount
    return removed


def _conditions(query: UsageQuery) -> tuple[str, list[str]]:
    asked = [("day >= ?", query.since), ("day <= ?", query.until)]
    asked += [(f'"{name}" = ?', getattr(query, name)) for name in FILTERS]
    given = [(condition, value) for condition, value in asked if value is not None]
    where = f"WHERE {' AND '.join(condition for condition, _ in given)}" if given else ""
    return where, [value for _, value in given]


def _counts(values: Sequence[int | float | None]) -> Counts:
    return msgspec.convert({name: value or 0 for name, value in zip(COUNTS, values, strict=True)}, Counts)
