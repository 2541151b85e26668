"""Usage in the owner's file: applied once, found by days and names, kept for a while."""

from __future__ import annotations

import sqlite3
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from support.accounts import Opened
from support.killed_owner import acknowledged_when_killed

from deployments.accounts.store.schema import FILE
from deployments.accounts.store.sql import SqlAccounts
from deployments.accounts.store.sqlite import SqliteAccounts
from deployments.accounts.store.usage import find_usage, sweep_usage
from serve_app.accounts.exchange import Report
from serve_app.settings import AccountSettings
from serve_app.usage import Counts, UsageQuery, UsageRow

NOW = 1_790_000_000.0
SETTINGS = AccountSettings(min_free_disk_bytes=0)


def row(
    day: str = "2026-09-21", tenant: str = "a", model: str = "m", user: str = "", **counts: int
) -> UsageRow:
    return UsageRow(day, tenant, f"key-{tenant}", user, model, Counts(**{"requests": 1, **counts}))


def report(seq: int, *rows: UsageRow, gateway: str = "g") -> Report:
    return Report(gateway=gateway, seq=seq, usage=rows)


async def requests(store: SqlAccounts, **query: object) -> list[tuple[tuple[str, ...], int]]:
    page = await store.usage(UsageQuery(**query))
    return [(group.of, group.counts.requests) for group in page.groups]


async def test_a_report_that_comes_again_is_counted_once(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        for seq in (1, 1, 2, 1, 2):
            await store.exchange(report(seq, row(tokens_in=10)), NOW)
        await store.exchange(report(1, row(), gateway="other"), NOW)
        page = await store.usage(UsageQuery(by=()))
        assert (page.total.requests, page.total.tokens_in) == (3, 20)
        assert [(group.of, group.counts.requests) for group in page.groups] == [((), 3)]


async def test_usage_is_found_by_days_and_names_and_grouped(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        rows = (
            row("2026-08-31", "a"),
            row("2026-09-01", "a", user="u"),
            row("2026-09-02", "b"),
            row("2026-09-02", "b", "n"),
        )
        await store.exchange(report(1, *rows), NOW)
        assert await requests(store, by=("day",)) == [
            (("2026-09-02",), 2),
            (("2026-09-01",), 1),
            (("2026-08-31",), 1),
        ]
        assert await requests(store, by=("month", "tenant")) == [
            (("2026-09", "b"), 2),
            (("2026-09", "a"), 1),
            (("2026-08", "a"), 1),
        ]
        assert await requests(store, by=("tenant",), since="2026-09-01", until="2026-09-01") == [(("a",), 1)]
        assert await requests(store, by=("model",), tenant="b", model="n") == [(("n",), 1)]
        assert await requests(store, by=("user",), user="u") == [(("u",), 1)]
        assert await requests(store, by=("key",), key="key-b") == [(("key-b",), 2)]
        assert await requests(store, by=("user",), tenant="' OR 1=1 --") == []
        assert await requests(store, by=(), tenant="nobody") == []


async def test_a_page_says_that_there_is_more_and_totals_all(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        await store.exchange(report(1, *(row(tenant=f"t{number}") for number in range(5))), NOW)
        page = await store.usage(UsageQuery(by=("tenant",), limit=3))
        assert (len(page.groups), page.more, page.total.requests) == (3, True, 5)
        assert not (await store.usage(UsageQuery(by=("tenant",), limit=5))).more


async def test_an_empty_file_has_no_usage(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        page = await store.usage(UsageQuery())
        assert (page.groups, page.total) == ([], Counts())


async def test_old_days_are_removed_and_the_oldest_where_there_are_too_many(tmp_path: Path) -> None:
    kept = AccountSettings(min_free_disk_bytes=0, usage_keep_days=30, usage_max_rows=1000)
    store = SqliteAccounts(tmp_path, kept)
    # NOW is in 2026-09-21
    await store.exchange(report(1, row("2026-08-20"), row("2026-08-22"), row("2026-09-21")), NOW)
    await store.sweep(NOW)
    assert [day for (day,), _ in await requests(store, by=("day",))] == ["2026-09-21", "2026-08-22"]
    await store.exchange(report(2, *(row(tenant=f"t{number}") for number in range(1000))), NOW)
    await store.sweep(NOW)
    assert [day for (day,), _ in await requests(store, by=("day",))] == ["2026-09-21"]
    await store.close()
    connection = sqlite3.connect(tmp_path / FILE)
    assert sweep_usage(connection, "2026-01-01", 1000) == 0
    assert find_usage(connection, UsageQuery(by=())).total.requests == 1000
    connection.close()


async def test_a_report_that_cannot_be_written_is_not_half_written(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        wrong = UsageRow("2026-09-21", "b", "k", "", "m", Counts(requests=None))  # type: ignore[arg-type]
        with pytest.raises(Exception, match=r"(?i)not.null"):
            await store.exchange(report(1, row(), wrong), NOW)
        assert (await store.usage(UsageQuery(by=()))).total.requests == 0
        await store.exchange(report(1, row()), NOW)
        assert (await store.usage(UsageQuery(by=()))).total.requests == 1


def count_until_killed(folder: str, told: Connection) -> None:
    import asyncio

    async def count() -> None:
        store = SqliteAccounts(Path(folder), SETTINGS)
        for seq in range(1, 1_000_000):
            await store.exchange(report(seq, row(tokens_in=3)), NOW)
            told.send(seq)

    asyncio.run(count())


async def test_a_killed_owner_loses_nothing_that_it_has_acknowledged(tmp_path: Path) -> None:
    acknowledged = acknowledged_when_killed(count_until_killed, tmp_path)
    store = SqliteAccounts(tmp_path, SETTINGS)
    total = (await store.usage(UsageQuery(by=()))).total
    assert acknowledged <= total.requests <= acknowledged + 1
    assert total.tokens_in == 3 * total.requests
    await store.exchange(report(acknowledged, row(tokens_in=3)), NOW)  # its gateway repeats it
    assert (await store.usage(UsageQuery(by=()))).total == total
    await store.close()
