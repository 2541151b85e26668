"""Accounts in a file or a database: what is kept stays kept, each report counts once, changes do not mix."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.accounts import Opened, managed

from deployments.accounts.store import schema
from deployments.accounts.store.base import Sql
from deployments.accounts.store.sql import SqlAccounts
from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.accounts.exchange import PAGE, Changes, Report
from serve_app.accounts.keys import (
    AccountsError,
    KeyQuery,
    ManagedKey,
    Outcome,
    State,
    changed_to,
    revoked,
    rotated,
)
from serve_app.accounts.refused import Refused, RefusedUser
from serve_app.settings import AccountSettings

NOW = 1000.0


@asynccontextmanager
async def file_opened(folder: Path, **settings: Any) -> AsyncIterator[SqliteAccounts]:
    store = SqliteAccounts(folder, AccountSettings(**{"min_free_disk_bytes": 0, **settings}))
    try:
        yield store
    finally:
        await store.close()


def report(known: Changes | None = None, seq: int = 1) -> Report:
    if known is None:
        return Report(gateway="g", seq=seq)
    return Report(
        gateway="g",
        seq=seq,
        store=known.store,
        keys_version=known.keys_version,
        keys_forgotten=known.keys_forgotten,
    )


def ids(changes: Changes) -> list[str]:
    return [record.id for record in changes.keys]


async def made(store: SqlAccounts, tenant: str = "acme", **rights: Any) -> ManagedKey:
    _, key = managed(tenant, NOW, **rights)
    assert (await store.make_key(key)).outcome is Outcome.KEPT
    return key


async def test_a_gateway_learns_all_keys_once_and_then_what_changes(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        one, two = await made(store), await made(store)
        first = await store.exchange(report(), NOW)
        assert (set(ids(first)), first.fresh, first.more) == ({one.record.id, two.record.id}, True, False)
        nothing = await store.exchange(report(first), NOW)
        assert (nothing.keys, nothing.revoked, nothing.fresh) == ((), (), False)
        await store.change_key(revoked(one, by="", now=NOW))
        three = await made(store)
        after = await store.exchange(report(first), NOW)
        assert (ids(after), after.revoked, after.fresh) == ([three.record.id], (one.record.id,), False)


async def test_what_was_answered_is_there_after_the_process_is_killed(tmp_path: Path) -> None:
    async with file_opened(tmp_path) as killed:
        key = await made(killed)
        async with file_opened(tmp_path) as store:  # the first one did not close its file
            assert await store.key(key.record.id) == key
            first = await killed.exchange(report(), NOW)
            assert (await store.exchange(report(first), NOW)).fresh is False


async def test_another_file_makes_a_gateway_begin_anew(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        await made(a)
        of_b = await made(b)
        changes = await b.exchange(report(await a.exchange(report(), NOW)), NOW)
        assert (changes.fresh, ids(changes)) == (True, [of_b.record.id])


async def test_an_older_copy_of_the_file_makes_a_gateway_begin_anew(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        await made(store)
        known = await store.exchange(report(), NOW)
        later = msgspec.structs.replace(known, keys_version=known.keys_version + 5)
        assert (await store.exchange(report(later), NOW)).fresh


async def test_many_keys_come_in_pages_that_miss_none(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        _, key = managed("acme", NOW)
        count = PAGE + 5

        def fill(db: Sql) -> None:
            for number in range(count):
                record = msgspec.structs.replace(key.record, id=f"{number:012x}")
                row = (record.id, "acme", None, 0, number + 1)
                body = msgspec.json.encode(msgspec.structs.replace(key, record=record))
                db.execute("INSERT INTO keys VALUES(?, ?, ?, ?, ?, ?)", (*row, body))

        await store._write(fill)
        first = await store.exchange(report(), NOW)
        assert (len(first.keys), first.fresh, first.more) == (PAGE, True, True)
        second = await store.exchange(report(first, 2), NOW)
        assert (second.fresh, second.more) == (False, False)
        assert len({*ids(first), *ids(second)}) == count


async def test_of_two_changes_to_one_state_the_second_is_told(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        key = await made(store)
        one = rotated(key, "salt", "0" * 64, by="", now=NOW, overlap_s=10)
        other = changed_to(key, msgspec.structs.replace(key.record, user="ann"), by="", now=NOW)
        kept = await asyncio.gather(store.change_key(one), store.change_key(other))
        assert sorted(each.outcome.value for each in kept) == ["conflict", "kept"]
        again = await store.change_key(one)  # its answer was lost: the same change comes again
        assert again.outcome is kept[0].outcome
        assert (await store.change_key(managed("acme")[1])).outcome is Outcome.ABSENT


async def test_a_key_that_is_made_twice_is_one_key(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        key = await made(store)
        assert (await store.make_key(key)).outcome is Outcome.KEPT
        other = msgspec.structs.replace(key, label="another")
        assert (await store.make_key(other)).outcome is Outcome.CONFLICT
        assert (await store.key(key.record.id)) == key


async def test_keys_are_bounded(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path, max_keys=1) as store:
        await made(store)
        assert (await store.make_key(managed("acme")[1])).outcome is Outcome.FULL


async def test_the_first_revoked_key_makes_room_for_a_new_one(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path, max_keys=3, max_keys_per_tenant=2) as store:
        first, second = await made(store), await made(store)
        assert (await store.make_key(managed("acme")[1])).outcome is Outcome.FULL
        other = await made(store, "beta")
        assert (await store.make_key(managed("beta")[1])).outcome is Outcome.FULL
        await store.change_key(revoked(second, by="", now=NOW))
        await store.change_key(revoked(first, by="", now=NOW))
        third = await made(store)
        assert await store.key(second.record.id) is None
        assert await store.key(first.record.id) is not None
        await made(store, "beta")  # all are full: the first tenant's revoked key makes room
        assert await store.key(first.record.id) is None
        assert {key.record.id for key in (await store.keys(KeyQuery())).keys} >= {
            third.record.id,
            other.record.id,
        }


async def test_a_gateway_learns_a_revocation_that_has_left_the_file(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path, max_keys=1) as store:
        ended = await made(store)
        away = await store.exchange(report(), NOW)
        assert ids(away) == [ended.record.id]
        await store.change_key(revoked(ended, by="", now=NOW))
        seen = await store.exchange(report(away, 2), NOW)
        assert seen.revoked == (ended.record.id,)
        key = await made(store)
        for known, is_fresh in ((away, True), (seen, False)):
            changes = await store.exchange(report(known, 3), NOW)
            assert (changes.fresh, ids(changes)) == (is_fresh, [key.record.id])
            again = await store.exchange(report(changes, 4), NOW)
            assert (again.fresh, ids(again), again.revoked) == (False, [], ())


async def test_pages_that_are_on_their_way_begin_anew_when_a_revocation_leaves_the_file(
    tmp_path: Path, opened: Opened
) -> None:
    async with opened(tmp_path, max_keys=PAGE + 5) as store:
        _, key = managed("acme", NOW)
        keys = [
            msgspec.structs.replace(key, record=msgspec.structs.replace(key.record, id=f"{number:012x}"))
            for number in range(PAGE + 5)
        ]

        def fill(db: Sql) -> None:
            for number, each in enumerate(keys):
                row = (each.record.id, "acme", None, 0, number + 1, msgspec.json.encode(each))
                db.execute("INSERT INTO keys VALUES(?, ?, ?, ?, ?, ?)", row)

        await store._write(fill)
        await store.change_key(revoked(keys[-1], by="", now=NOW))
        await made(store)  # from now on the file has forgotten a key
        first = await store.exchange(report(), NOW)
        assert (first.fresh, first.more) == (True, True)
        assert not (await store.exchange(report(first, 2), NOW)).fresh
        await store.change_key(revoked(keys[0], by="", now=NOW))
        await made(store)
        assert (await store.exchange(report(first, 3), NOW)).fresh


async def test_keys_are_listed_in_pages_by_tenant_user_and_state(tmp_path: Path, opened: Opened) -> None:
    async with opened(tmp_path) as store:
        ann = [await made(store, user="ann") for _ in range(3)]
        bob = await made(store, user="bob")
        other = await made(store, "beta")
        await store.change_key(revoked(bob, by="", now=NOW))

        async def found(**query: Any) -> list[str]:
            page = await store.keys(KeyQuery(**query))
            return [key.record.id for key in page.keys]

        wanted = sorted(key.record.id for key in ann)
        assert await found(tenant="acme") == wanted
        assert await found(user="ann") == wanted
        assert await found(tenant="beta", state=State.ANY) == [other.record.id]
        assert await found(state=State.REVOKED) == [bob.record.id]
        assert len(await found(state=State.ANY)) == 5
        page = await store.keys(KeyQuery(tenant="acme", limit=2))
        assert ([key.record.id for key in page.keys], page.has_more) == (wanted[:2], True)
        rest = await store.keys(KeyQuery(tenant="acme", limit=2, after=wanted[1]))
        assert ([key.record.id for key in rest.keys], rest.has_more) == (wanted[2:], False)


async def test_a_locked_file_refuses_changes_and_still_answers_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_MS", 20)
    async with file_opened(tmp_path) as store:
        key = await made(store)
        locking = sqlite3.connect(tmp_path / schema.FILE, isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(AccountsError, match="locked"):
                await store.change_key(revoked(key, by="", now=NOW))
            assert ids(await store.exchange(report(), NOW)) == [key.record.id]
        finally:
            locking.execute("ROLLBACK")
            locking.close()
        assert (await store.change_key(revoked(key, by="", now=NOW))).outcome is Outcome.KEPT


async def test_a_full_disk_refuses_changes_and_still_answers_questions(tmp_path: Path) -> None:
    async with file_opened(tmp_path) as store:
        key = await made(store)
        await store._write(lambda db: db.execute("PRAGMA max_page_count=1"))  # as small as it is now
        large = managed("acme", endpoints=tuple(f"/v1/{number}" for number in range(50_000)))[1]
        with pytest.raises(AccountsError, match="full"):
            await store.make_key(large)
        assert await store.key(key.record.id) == key
    async with file_opened(tmp_path, min_free_disk_bytes=1 << 60) as store:
        with pytest.raises(AccountsError, match="min_free_disk_bytes"):
            await store.make_key(managed("acme")[1])
        assert await store.key(key.record.id) == key


async def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    async with file_opened(tmp_path):
        pass
    with sqlite3.connect(tmp_path / schema.FILE) as db:
        db.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    db.close()
    with pytest.raises(AccountsError, match="newer version"):
        async with file_opened(tmp_path):
            pass


async def test_only_its_owner_may_read_the_file_and_no_secret_is_in_it(tmp_path: Path) -> None:
    async with file_opened(tmp_path / "new") as store:
        key, kept = managed("acme", NOW)
        await store.make_key(kept)
        mode = (tmp_path / "new").stat().st_mode
        assert stat.S_IMODE(mode) == 0o700
        content = b"".join(path.read_bytes() for path in (tmp_path / "new").iterdir())
        assert kept.record.id.encode() in content
        assert key.rsplit("-", 1)[-1].encode() not in content


async def test_a_gateway_is_told_all_refused_users_when_they_have_changed(
    tmp_path: Path, opened: Opened
) -> None:
    ada = RefusedUser(tenant="maths", user="ada", at=NOW)
    kurt = RefusedUser(tenant="maths", user="kurt", at=NOW, holds_admins=True)

    async def told(version: str | None) -> Refused | None:
        asked = msgspec.structs.replace(report(), refused=version)
        return (await store.exchange(asked, NOW)).refused

    async with opened(tmp_path) as store:
        assert await told(None) == Refused("", ())  # nobody, which is to be known, too
        assert await told("") is None
        for user in (kurt, ada, ada):  # a call may come twice
            assert await store.refuse_user(user) is Outcome.KEPT
        known = await told("")
        assert known is not None
        assert known.users == (ada, kurt)
        assert await told(known.version) is None
        lower = msgspec.structs.replace(kurt, holds_admins=False)
        assert await store.refuse_user(lower) is Outcome.KEPT  # which takes nothing back
        assert await store.let_in_user("maths", "kurt", False) is Outcome.CONFLICT
        assert await told(known.version) is None
        assert await store.let_in_user("maths", "ada", False) is Outcome.KEPT
        assert await store.let_in_user("maths", "ada", False) is Outcome.ABSENT
        later = await told(known.version)
        assert later is not None
        assert later.users == (kurt,)
        assert await store.refused_users() == later
