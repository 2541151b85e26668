"""The store of responses in a file: chains, bounds, ends of life, and a process that is killed."""

from __future__ import annotations

import asyncio
import json
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deployments.responses.store.schema import FILE
from deployments.responses.store.sqlite import INLINE_BYTES, SqliteStore
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.status import LEASE_S
from serve_app.stored_responses.values import (
    Absence,
    ChainBounds,
    Conversation,
    NewItem,
    Outcome,
    Part,
    Record,
    StoreError,
)

ROOMY = ChainBounds(1000, 1 << 20, 1 << 20)
NOW = 1000.0


@asynccontextmanager
async def opened(folder: Path, now: float = NOW, **settings: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder, ResponsesSettings(min_free_disk_bytes=0, **settings), now)
    try:
        yield store
    finally:
        await store.close()


def record(name: str, previous: str | None = None, **fields: Any) -> Record:
    values: dict[str, Any] = {
        "id": name,
        "tenant": "a",
        "status": "completed",
        "response": json.dumps({"id": name, "status": "completed"}).encode(),
        "input": json.dumps([f"asked {name}"]).encode(),
        "output": json.dumps([f"said {name}"]).encode(),
        "previous": previous,
    }
    return Record(**values | fields)


async def said(store: SqliteStore, name: str, tenant: str = "a") -> list[str]:
    history = await store.history(tenant, name, ROOMY, NOW)
    return [text for part in history.parts for text in json.loads(part)]


async def absence(store: SqliteStore, name: str, tenant: str = "a", now: float = NOW) -> Absence | None:
    return (await store.get(tenant, name, now)).absence


async def test_a_chain_is_read_from_its_beginning_and_may_branch(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for name, previous in (("1", None), ("2", "1"), ("left", "2"), ("right", "2")):
            assert await store.put(record(name, previous), [], NOW) is Outcome.STORED
        before = ["asked 1", "said 1", "asked 2", "said 2"]
        assert await said(store, "left") == [*before, "asked left", "said left"]
        assert await said(store, "right") == [*before, "asked right", "said right"]
        assert await said(store, "left", "b") == []
        assert await absence(store, "left", "b") is Absence.UNKNOWN


async def test_another_tenant_cannot_overwrite_or_continue_a_response(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(record("1"), [], NOW)
        assert await store.put(record("1", tenant="b"), [], NOW) is Outcome.OVER
        await store.put(record("2", "1", tenant="b"), [], NOW)
        assert await said(store, "2", "b") == ["asked 2", "said 2"]


async def test_a_repeated_write_has_no_further_effect(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(3):
            assert await store.put(record("1"), [], NOW) is Outcome.STORED
        stats = await store.stats()
        assert (stats.entries, stats.size) == (1, record("1").size)


async def test_a_file_is_for_its_user_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "new") as store:
        await store.put(record("1"), [], NOW)
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
        modes = {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "new").iterdir()}
        assert modes == {0o600}


async def test_a_chain_lives_as_long_as_its_last_use(tmp_path: Path) -> None:
    async with opened(tmp_path, ttl_s=10.0) as store:
        await store.put(record("1"), [], NOW)
        await store.put(record("alone"), [], NOW)
        await store.put(record("2", "1"), [], NOW + 8)
        assert await absence(store, "1", now=NOW + 12) is None
        assert await absence(store, "alone", now=NOW + 12) is Absence.EXPIRED
        await store.sweep(NOW + 12)
        assert (await store.stats()).entries == 2
        assert await absence(store, "alone", now=NOW + 12) is Absence.EXPIRED, "also when it is removed"
        assert await absence(store, "alone", "b", NOW + 12) is Absence.UNKNOWN


async def test_bounds_take_the_longest_unused_chain_of_the_largest_tenant(tmp_path: Path) -> None:
    async with opened(tmp_path, max_entries=4) as store:
        await store.put(record("theirs", tenant="b"), [], NOW)
        for number in range(3):
            await store.put(record(str(number)), [], NOW + 1 + number)
        await store.put(record("0b", "0"), [], NOW + 9)
        assert await absence(store, "theirs", "b") is None
        assert await absence(store, "1") is Absence.EVICTED
        assert await absence(store, "0") is None


async def test_a_tenant_has_bounds_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path, max_entries_per_tenant=2, max_bytes_per_tenant=2048) as store:
        for number in range(3):
            assert await store.put(record(str(number)), [], NOW + number) is Outcome.STORED
        assert await absence(store, "0") is Absence.EVICTED
        large = record("large", response=b"x" * 3000)
        assert await store.put(large, [], NOW) is Outcome.FULL
        assert await absence(store, "large") is Absence.UNKNOWN
        assert await absence(store, "2") is None, "a write that cannot succeed evicts nothing"


async def test_metadata_counts_and_is_given_back(tmp_path: Path) -> None:
    made = Conversation(id="conv", created=1)
    async with opened(tmp_path, max_bytes_per_tenant=2048) as store:
        await store.create_conversation("a", made, [], NOW)
        for size in (1000, 10, 1500):
            assert not (await store.set_metadata("a", "conv", b"x" * size, NOW)).is_full
            assert (await store.stats()).size == size
        assert (await store.set_metadata("a", "conv", b"x" * 3000, NOW)).is_full
        assert (await store.stats()).size == 1500
        await store.delete_conversation("a", "conv", NOW)
        stats = await store.stats()
        assert (stats.entries, stats.size) == (0, 0)


async def test_a_cancelled_response_gives_back_all_that_it_took(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(record("1", status="queued", owner="gateway"), [], NOW)
        await store.cancel("a", "1", NOW)
        await store.delete("a", "1", NOW)
        await store.put(record("other"), [], NOW)
        assert (await store.stats()).size == record("other").size


async def test_all_that_is_written_counts_and_a_chain_by_its_items_alone(tmp_path: Path) -> None:
    large = record("1", response=b"r" * 1000, output=b"[%b]" % (b" " * 500))
    async with opened(tmp_path) as store:
        await store.put(large, [], NOW)
        assert (await store.stats()).size == 1000 + len(large.input) + 502
        assert (await store.history("a", "1", ROOMY, NOW)).size == len(large.input) + 502


async def test_what_is_large_is_read_beside_the_event_loop_and_is_the_same(tmp_path: Path) -> None:
    text = "x" * (INLINE_BYTES + 1)
    async with opened(tmp_path) as store:
        await store.put(record("1", input=json.dumps([text]).encode()), [], NOW)
        reading = asyncio.ensure_future(store.get("a", "1", NOW))
        await asyncio.sleep(0)
        assert not reading.done(), "other calls go on meanwhile"
        assert (await reading).record is not None
        assert await said(store, "1") == [text, "said 1"]
        own = [await store.own_items("a", "1", with_input, NOW) for with_input in (False, True)]
        assert [len(each.parts) for each in own] == [1, 2]
        assert (await store.own_items("b", "1", True, NOW)).absence is Absence.UNKNOWN


async def test_one_response_is_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path, max_entry_bytes=1024) as store:
        assert await store.put(record("1", response=b"x" * 2000), [], NOW) is Outcome.TOO_LARGE


async def test_a_full_disk_stores_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, ResponsesSettings(min_free_disk_bytes=1 << 60), NOW)
    assert await store.put(record("1"), [], NOW) is Outcome.FULL
    await store.close()


async def test_a_write_that_failed_leaves_nothing_in_the_counts(tmp_path: Path) -> None:
    async with opened(tmp_path, max_entries_per_tenant=3) as store:
        for name in ("1", "2"):
            await store.put(record(name), [], NOW)
        before = await store.stats()
        (pages,) = store._writing.execute("PRAGMA page_count").fetchone()
        store._writing.execute(f"PRAGMA max_page_count={pages}")
        for name in ("3", "4", "5"):
            with pytest.raises(StoreError, match="full"):
                await store.put(record(name, response=b"x" * 50_000), [], NOW)
        assert await store.stats() == before
        store._writing.execute(f"PRAGMA max_page_count={1 << 30}")
        assert await store.put(record("6"), [], NOW) is Outcome.STORED
        assert [await absence(store, name) for name in ("1", "2", "6")] == [None] * 3, "none was evicted"


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_commit_that_failed_leaves_nothing_and_writes_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(record("1"), [], NOW)
        before = await store.stats()
        log = tmp_path / f"{FILE}-wal"
        with no_file_beyond(log.stat().st_size + 8192), pytest.raises(StoreError, match="I/O"):
            await store.put(record("2", response=b"x" * 100_000), [], NOW)
        assert await store.stats() == before
        assert await store.put(record("3"), [], NOW) is Outcome.STORED
        assert [await absence(store, name) for name in ("1", "2", "3")] == [None, Absence.UNKNOWN, None]


async def test_a_chain_that_is_too_long_tells_its_length_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(record("1"), [], NOW)
        await store.put(record("2", "1", tokens=50), [], NOW)
        for bounds, named in (
            (ChainBounds(1, 1 << 20, 100), "responses.max_chain)"),
            (ChainBounds(9, 10, 100), "responses.max_chain_bytes"),
            (ChainBounds(9, 1 << 20, 10), "responses.max_chain_tokens"),
        ):
            history = await store.history("a", "2", bounds, NOW)
            assert history.parts == []
            assert named in (bounds.exceeded(history) or "")


async def test_what_was_deleted_breaks_its_chain_and_does_not_come_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(record("1"), [], NOW)
        await store.put(record("2", "1"), [], NOW)
        assert await store.delete("b", "1", NOW) is Absence.UNKNOWN
        assert await store.delete("a", "1", NOW) is None
        assert await store.delete("a", "1", NOW) is Absence.DELETED
        assert (await store.history("a", "2", ROOMY, NOW)).broken
        assert await store.put(record("1"), [], NOW) is Outcome.OVER
        assert await store.delete("a", "2", NOW) is None
        assert (await store.stats()).entries == 0


async def test_an_unfinished_response_fails_when_its_owner_is_not_heard_of(tmp_path: Path) -> None:
    running = {"status": "in_progress", "owner": "gateway"}
    async with opened(tmp_path) as store:
        await store.put(record("1", **running), [], NOW)
        await store.beat("gateway", ["1"], NOW + 5)
        (alive, dead) = [(await store.get("a", "1", NOW + 5 + age)).record for age in (1, LEASE_S + 1)]
        assert alive is not None
        assert dead is not None
        assert (alive.status, dead.status) == ("in_progress", "failed")
        assert "gone" in json.loads(dead.response)["error"]["message"]
        statuses = [await store.status("a", "1", NOW + 5 + age) for age in (1, LEASE_S + 1)]
        assert statuses == ["in_progress", "failed"]
        assert await store.status("b", "1", NOW + 6) is None
    async with opened(tmp_path, now=NOW + 60) as store:
        found = await store.get("a", "1", NOW + 61)
        assert found.record is not None
        assert found.record.status == "in_progress", "nobody could report while the store was away"


async def test_what_its_owner_no_longer_reports_has_failed_although_the_owner_lives(tmp_path: Path) -> None:
    running = {"status": "in_progress", "owner": "gateway"}
    later = NOW + LEASE_S + 1
    async with opened(tmp_path) as store:
        await store.put(record("lost", **running), [], NOW)
        await store.put(record("known", **running), [], NOW)
        await store.put(record("new", **running), [], later)
        await store.beat("gateway", ["known"], later)
        found = [(await store.get("a", name, later)).record for name in ("lost", "known", "new")]
        assert [each.status for each in found if each] == ["failed", "in_progress", "in_progress"]
        for name in ("lost", "known", "new"):
            await store.delete("a", name, later)
        assert (await store.stats()).size == 0


async def test_a_response_removed_while_it_was_gone_on_from_breaks_the_chain(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(record("1"), [], NOW)
        await store.delete("a", "1", NOW)
        await store.put(record("2", "1"), [], NOW)
        await store.put(record("3", "2"), [], NOW)
        assert (await store.history("a", "2", ROOMY, NOW)).broken
        assert (await store.history("a", "3", ROOMY, NOW)).broken


async def test_what_was_cancelled_stays_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(record("1", status="in_progress", owner="gateway"), [], NOW)
        found = await store.cancel("a", "1", NOW)
        assert found.record is not None
        assert found.record.status == "cancelled"
        assert await store.beat("gateway", ["1", "unknown"], NOW) == ["1", "unknown"]
        assert await store.put(record("1"), [], NOW) is Outcome.OVER


async def test_a_conversation_keeps_its_items_in_order(tmp_path: Path) -> None:
    made = Conversation(id="conv", created=1)
    first, second = NewItem("x", b'"x"'), NewItem("y", b'"y"')
    async with opened(tmp_path) as store:
        for _ in range(2):
            assert await store.create_conversation("a", made, [first], NOW) is Outcome.STORED
        await store.put(record("1", conversation="conv"), [first, second], NOW)
        assert (await store.conversation_items("a", "conv", ROOMY, NOW)).parts == [b'"x"', b'"y"']
        assert (await store.conversation_items("b", "conv", ROOMY, NOW)).absence is Absence.UNKNOWN
        assert (await store.add_items("b", "conv", [second], NOW)).absence is Absence.UNKNOWN
        assert await store.delete_item("a", "conv", "x", NOW) is None
        assert await store.delete_item("a", "conv", "x", NOW) is Absence.UNKNOWN
        assert await store.delete_conversation("a", "conv", NOW) is None
        assert await absence(store, "1") is None
        assert (await store.stats()).entries == 1


def item(name: str, said: str = "", spare: str = "") -> NewItem:
    return NewItem(name, json.dumps({"id": name, "said": said}).encode(), spare)


async def listed(store: SqliteStore, **part: Any) -> tuple[list[str], bool]:
    """Ids and whether more follow."""
    found = await store.listed_items("a", "conv", Part(**{"limit": 100} | part), NOW)
    return [json.loads(each)["id"] for each in found.items], found.has_more


async def test_the_items_of_a_conversation_are_listed_in_parts_however_many_they_are(tmp_path: Path) -> None:
    items = [item(name, "x" * 600) for name in "abcde"]
    async with opened(tmp_path, max_chain_bytes=1024) as store:
        await store.create_conversation("a", Conversation(id="conv", created=1), items, NOW)
        assert await listed(store) == (["a"], True)  # a part has no more bytes than a chain may have
        assert await listed(store, after="a") == (["b"], True)
        assert await listed(store, after="d") == (["e"], False)
        assert await listed(store, newest_first=True, after="b") == (["a"], False)
        one = await store.conversation_item("a", "conv", "c", NOW)
        assert one.items == [items[2].item]
        assert (await store.conversation_item("a", "conv", "z", NOW)).items == []
        assert (await store.listed_items("a", "conv", Part(limit=1, after="z"), NOW)).after_is_unknown
        assert (await store.listed_items("b", "conv", Part(limit=1), NOW)).absence is Absence.UNKNOWN
    async with opened(tmp_path) as store:
        assert await listed(store, limit=2) == (["a", "b"], True)
        assert await listed(store, newest_first=True, limit=5) == (["e", "d", "c", "b", "a"], False)
        plan = store._reading.execute(
            "EXPLAIN QUERY PLAN SELECT item FROM items WHERE conversation = ? AND position > 1 "
            "ORDER BY position ASC",
            ("conv",),
        ).fetchall()
        assert [step[-1] for step in plan] == [
            "SEARCH items USING INDEX items_in_order (conversation=? AND rowid>?)"
        ]


async def test_another_item_of_the_same_id_is_kept_under_its_spare_one(tmp_path: Path) -> None:
    first, other = item("msg_1", "hi"), item("msg_1", "bye", spare="msg_own")
    async with opened(tmp_path) as store:
        await store.create_conversation("a", Conversation(id="conv", created=1), [first], NOW)
        for _ in range(2):  # a repeated call adds nothing
            assert (await store.add_items("a", "conv", [other], NOW)).ids == ["msg_own"]
        assert (await store.add_items("a", "conv", [first], NOW)).ids == ["msg_1"]
        assert await listed(store) == (["msg_1", "msg_own"], False)


async def test_tries_of_one_write_are_one_write(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        free = threading.Event()
        stall = asyncio.ensure_future(store._write(free.wait))
        tries = [asyncio.ensure_future(store.put(record("1"), [], NOW)) for _ in range(5)]
        await asyncio.sleep(0)
        tries[0].cancel()  # its caller was impatient
        await asyncio.sleep(0)
        assert store._writer._work_queue.qsize() <= 1
        free.set()
        assert await asyncio.gather(*tries[1:]) == [Outcome.STORED] * 4
        await stall


WRITER = """
import asyncio, sys
from pathlib import Path
from deployments.responses.store.schema import FILE
from deployments.responses.store.sqlite import SqliteStore
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.values import Record

async def main():
    store = SqliteStore(Path(sys.argv[1]), ResponsesSettings(min_free_disk_bytes=0), 1000.0)
    for number in range(100_000):
        record = Record(id=str(number), tenant="a", status="completed", response=b"{}", input=b"[]")
        await store.put(record, [], 1000.0)
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(tmp_path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    while int(line := await process.stdout.readline()) < 200:
        pass
    process.kill()
    last = int([line, *(await process.stdout.read()).split()][-1])
    await process.wait()
    async with opened(tmp_path) as store:
        assert [number for number in range(last + 1) if await absence(store, str(number)) is not None] == []


async def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        store._writing.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="another version"):
        SqliteStore(tmp_path, ResponsesSettings(), NOW)
