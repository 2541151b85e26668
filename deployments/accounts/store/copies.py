"""Accounts in a backup, and back: keys (their hashes), refused users, limits, used budgets, and usage.

Which reports of gateways were applied is not copied: every gateway has a new name after a start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deployments.accounts.store import keys, limits, refused
from deployments.accounts.store.base import Sql
from deployments.accounts.store.postgres import transact, url_from
from deployments.accounts.store.registry import folder_of
from deployments.accounts.store.schema import FILE, VERSION, file_in, prepare
from deployments.accounts.store.usage import QUOTED
from deployments.platform.sqlite_copies import Rows
from serve_app.accounts.keys import AccountsError
from serve_app.errors import BackupError
from serve_app.settings import AccountSettings
from serve_app.usage.rows import COUNTS, DIMENSIONS

SCHEMA = VERSION

ADD_USAGE = (
    f"INSERT INTO usage({QUOTED}, {', '.join(COUNTS)}) "
    f"VALUES({', '.join('?' * (len(DIMENSIONS) + len(COUNTS)))}) ON CONFLICT({QUOTED}) DO UPDATE SET "
    + ", ".join(
        f"{name} = CASE WHEN excluded.{name} > usage.{name} THEN excluded.{name} ELSE usage.{name} END"
        for name in COUNTS
    )
)
"""Counts only grow: the larger one is the later one."""

ADD_USED = (
    "INSERT INTO used VALUES(?, ?, ?, ?) ON CONFLICT(scope, bound, label) DO UPDATE SET "
    "amount = CASE WHEN excluded.amount > used.amount THEN excluded.amount ELSE used.amount END"
)


def copy_accounts(source: Sql, target: Sql, tenant: str | None) -> int:
    """Keeps the version of a key that was changed more often, but a key that is revoked there stays revoked
    whatever the copy says. A limit that is set or was removed there stays. A user who is refused in either is
    refused."""
    return (
        _copy_keys(source, target, tenant)
        + _copy_refused(source, target, tenant)
        + _copy_limits(source, target, tenant)
        + _copy_used(source, target, tenant)
        + _copy_usage(source, target, tenant)
    )


ROWS = Rows("accounts", prepare, copy_accounts, AccountsError)


def save_accounts(settings: AccountSettings, scratch: Path, tenant: str | None) -> tuple[Path, int] | None:
    """``None``: there are none. The owner may be running. Raises: BackupError."""
    if settings.store is None:
        path = folder_of(settings) / FILE
        return ROWS.save(path, scratch, tenant) if path.exists() else None
    saved = scratch / ROWS.name
    with ROWS.opened(saved) as target:
        try:
            with transact(url_from(settings.store.url_env), is_owner=False) as source:
                return saved, copy_accounts(source, target, tenant)
        except AccountsError as error:
            raise BackupError(str(error)) from error


@contextmanager
def restoring_accounts(saved: Path, settings: AccountSettings, tenant: str | None) -> Iterator[int]:
    """The rows are there when this ends, or none of them. Raises: BackupError."""
    if settings.store is None:
        with ROWS.restoring(saved, file_in(folder_of(settings)), tenant) as rows:
            yield rows
        return
    with ROWS.opened(saved) as source:
        try:
            with transact(url_from(settings.store.url_env), is_owner=True) as target:
                yield copy_accounts(source, target, tenant)
        except AccountsError as error:
            raise BackupError(f"Nothing was restored: {error}") from error


def _copy_keys(source: Sql, target: Sql, tenant: str | None) -> int:
    copied = 0
    for (raw,) in _of(source, "SELECT key FROM keys", tenant, " ORDER BY changed"):
        key = keys.DECODER.decode(raw)
        known = keys.one(target, key.record.id)
        if known is None or (known.version < key.version and known.revoked_at is None):
            keys.write(target, key)
            copied += 1
    return copied


def _copy_refused(source: Sql, target: Sql, tenant: str | None) -> int:
    mine = [user for user in refused.everyone(source).users if tenant in (None, user.tenant)]
    for user in mine:
        refused.refuse(target, user)
    return len(mine)


def _copy_limits(source: Sql, target: Sql, tenant: str | None) -> int:
    copied = 0
    belongs = _scopes_of(source, tenant)
    for limit in limits.everything(source):
        is_known = target.execute("SELECT 1 FROM limits WHERE scope=?", (limit.scope,)).fetchone()
        if belongs(limit.scope) and not is_known:
            limits.put(target, limit)
            copied += 1
    return copied


def _copy_used(source: Sql, target: Sql, tenant: str | None) -> int:
    belongs = _scopes_of(source, tenant)
    rows = source.execute("SELECT scope, bound, label, amount FROM used").fetchall()
    mine = [row for row in rows if belongs(row[0])]
    target.executemany(ADD_USED, mine)
    return len(mine)


def _copy_usage(source: Sql, target: Sql, tenant: str | None) -> int:
    rows = _of(source, f"SELECT {QUOTED}, {', '.join(COUNTS)} FROM usage", tenant).fetchall()
    target.executemany(ADD_USAGE, rows)
    return len(rows)


def _of(source: Sql, statement: str, tenant: str | None, order: str = "") -> Any:
    if tenant is None:
        return source.execute(statement + order)
    return source.execute(f"{statement} WHERE tenant=?{order}", (tenant,))


def _scopes_of(source: Sql, tenant: str | None) -> Any:
    """Whether a scope is the tenant's. A model's belongs to no tenant."""
    if tenant is None:
        return lambda scope: True
    own = {f"tenant:{tenant}"}
    own |= {f"key:{name}" for (name,) in _of(source, "SELECT id FROM keys", tenant)}
    return lambda scope: scope in own or scope.startswith((f"user:{tenant}/", f"use:{tenant}/"))
