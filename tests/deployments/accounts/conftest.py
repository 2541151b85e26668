"""Stores of accounts, of each kind."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.accounts import Opened
from support.postgres import NoPostgres, PostgresServer, postgres_server, programs

from deployments.accounts.store.postgres import PostgresAccounts
from deployments.accounts.store.sql import SqlAccounts
from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.settings import AccountSettings


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed (the extra `postgres`)")
    try:
        programs()
    except NoPostgres as error:
        pytest.skip(str(error))
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    urls: dict[Path, str] = {}

    @asynccontextmanager
    async def of(folder: Path, **given: Any) -> AsyncIterator[SqlAccounts]:
        settings = AccountSettings(**{"min_free_disk_bytes": 0, **given})
        store: SqlAccounts
        if request.param == "sqlite":
            store = SqliteAccounts(folder, settings)
        else:
            if folder not in urls:
                urls[folder] = request.getfixturevalue("postgres").new_schema()
            store = PostgresAccounts(urls[folder], settings)
        try:
            yield store
        finally:
            await store.close()

    return of
