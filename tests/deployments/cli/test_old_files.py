"""Files of every earlier version are opened, read, written and backed up by this one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.accounts import managed
from support.old_schemas import ACCOUNTS, STORED, Old

from deployments.accounts.store import schema as accounts_schema
from deployments.accounts.store.copies import ROWS as ACCOUNT_ROWS
from deployments.accounts.store.sqlite import SqliteAccounts
from deployments.responses.store import schema as responses_schema
from deployments.responses.store.copies import ROWS as RESPONSE_ROWS
from deployments.responses.store.sqlite import SqliteStore
from serve_app.accounts.keys import KeyQuery, Outcome
from serve_app.settings import AccountSettings, ResponsesSettings
from serve_app.stored_responses.values import ChainBounds, StoreError
from serve_app.usage import UsageQuery

ROOMY = ChainBounds(1000, 1 << 20, 1 << 20)
NOW = 2000.0


@pytest.mark.parametrize("old", ACCOUNTS.values(), ids=ACCOUNTS)
async def test_accounts_of_an_earlier_version_go_on(old: Old, tmp_path: Path) -> None:
    old.write(tmp_path / accounts_schema.FILE)
    store = SqliteAccounts(tmp_path, AccountSettings(min_free_disk_bytes=0))
    try:
        (key,) = (await store.keys(KeyQuery())).keys
        assert (key.record.tenant, key.label, key.version, key.changed_by) == ("acme", "build", 2, "")
        assert (await store.make_key(managed("acme")[1])).outcome is Outcome.KEPT
        used = (await store.usage(UsageQuery())).total.requests
        assert used == (3 if "usage" in old.tables else 0)
        limits, _ = await store.limits()
        assert [limit.tokens_per_day for limit in limits] == ([9] if "limits" in old.tables else [])
    finally:
        await store.close()


@pytest.mark.parametrize("old", STORED.values(), ids=STORED)
async def test_responses_of_an_earlier_version_go_on(old: Old, tmp_path: Path) -> None:
    old.write(tmp_path / responses_schema.FILE)
    store = SqliteStore(tmp_path, ResponsesSettings(min_free_disk_bytes=0), NOW)
    try:
        history = await store.history("acme", "resp_1", ROOMY, NOW)
        assert b"asked" in b"".join(history.parts)
        items = await store.conversation_items("acme", "conv_1", ROOMY, NOW)
        assert b"".join(items.parts) == b'"first""second"'
        assert (await store.stats()).entries == 2
        assert await store.delete("acme", "resp_1", NOW) is None
    finally:
        await store.close()


@pytest.mark.parametrize("old", ACCOUNTS.values(), ids=ACCOUNTS)
def test_a_backup_of_accounts_of_an_earlier_version_is_of_this_one(old: Old, tmp_path: Path) -> None:
    path = tmp_path / "folder" / accounts_schema.FILE
    old.write(path)
    before = path.read_bytes()
    saved, rows = ACCOUNT_ROWS.save(path, tmp_path, None)
    assert rows == 1 + len(old.rows)
    assert path.read_bytes() == before
    assert tables(saved) >= {"keys", "usage", "limits", "used"}


@pytest.mark.parametrize("old", STORED.values(), ids=STORED)
def test_a_backup_of_responses_of_an_earlier_version_is_of_this_one(old: Old, tmp_path: Path) -> None:
    path = tmp_path / "folder" / responses_schema.FILE
    old.write(path)
    saved, rows = RESPONSE_ROWS.save(path, tmp_path, None)
    assert (rows, saved.stat().st_mode & 0o777) == (2, 0o600)
    assert indexes(saved) >= {"responses_of_owner", "items_in_order"}


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / responses_schema.FILE
    STORED["in order"].write(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="99"):
        SqliteStore(tmp_path, ResponsesSettings(), NOW)
    assert path.read_bytes() == before


def tables(path: Path) -> set[str]:
    return _names(path, "table")


def indexes(path: Path) -> set[str]:
    return _names(path, "index")


def _names(path: Path, kind: str) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type=?", (kind,))
        }
    finally:
        connection.close()
