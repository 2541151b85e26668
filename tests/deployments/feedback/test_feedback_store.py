"""The file of feedback: whose it is, what replaces what, what is left out, and what is left behind."""

from __future__ import annotations

import asyncio
import base64
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from support.feedback import a_request

from deployments.feedback.store import rows, schema
from deployments.feedback.store.registry import PURPOSE, open_store
from deployments.feedback.store.schema import FILE
from deployments.feedback.store.sqlite import SqliteFeedback
from deployments.platform.sealing import KEY_BYTES, TenantSeal
from serve_app.feedback.values import FeedbackError, FeedbackQuery, Outcome, Said
from serve_app.settings import FeedbackSettings

NOW = 2000.0
WRONG = Said(score=0.0, text="the capital is Lyon")
RIGHT = Said(score=1.0)


def is_in_files(folder: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in folder.iterdir())


@asynccontextmanager
async def opened(
    folder: Path, seal: TenantSeal | None = None, **settings: Any
) -> AsyncIterator[SqliteFeedback]:
    store = SqliteFeedback(folder, FeedbackSettings(**{"min_free_disk_bytes": 0, **settings}), seal)
    try:
        yield store
    finally:
        await store.close()


async def test_what_is_said_of_a_request_is_found_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1, cache="semantic")])
        kept = await store.say("acme", "r1", "user:ann", WRONG, NOW)
        assert (kept.outcome, kept.request) == (Outcome.KEPT, a_request(1, cache="semantic"))
        (found,) = (await store.page(FeedbackQuery())).feedback
        assert (found.said, found.author, found.at) == (WRONG, "user:ann", NOW)
        assert found.request.cache == "semantic"


async def test_one_author_says_one_thing_of_a_request_and_two_say_two(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1)])
        await store.say("acme", "r1", "user:ann", WRONG, NOW)
        again = await store.say("acme", "r1", "user:ann", RIGHT, NOW + 1)
        assert (again.outcome, again.was_negative) == (Outcome.REPLACED, True)
        other = await store.say("acme", "r1", "user:bob", WRONG, NOW + 2)
        assert other.outcome is Outcome.KEPT
        found = (await store.page(FeedbackQuery())).feedback
        assert [(each.author, each.said.score) for each in found] == [("user:bob", 0.0), ("user:ann", 1.0)]


async def test_another_tenants_request_is_unknown_even_under_the_same_id(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1), a_request(2, tenant="other")])
        assert (await store.say("other", "r1", "", WRONG, NOW)).outcome is Outcome.UNKNOWN
        assert (await store.say("acme", "r9", "", WRONG, NOW)).outcome is Outcome.UNKNOWN
        await store.report([a_request(1, tenant="other", model="else")])
        kept = await store.say("other", "r1", "", WRONG, NOW)
        assert kept.request is not None
        assert kept.request.model == "else"
        assert (await store.page(FeedbackQuery(tenant="acme"))).feedback == ()


async def test_pages_follow_one_another_and_filters_hold(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(number) for number in range(5)])
        for number in range(5):
            said = WRONG if number % 2 else Said(score=1.0, correction="Paris")
            await store.say("acme", f"r{number}", "", said, NOW + number)
        first = await store.page(FeedbackQuery(limit=2))
        assert [each.request_id for each in first.feedback] == ["r4", "r3"]
        assert first.has_more
        rest = await store.page(FeedbackQuery(after=first.feedback[-1].number))
        assert [each.request_id for each in rest.feedback] == ["r2", "r1", "r0"]
        assert not rest.has_more
        wrong = await store.page(FeedbackQuery(negative=True))
        assert [each.request_id for each in wrong.feedback] == ["r3", "r1"]
        corrected = await store.page(FeedbackQuery(corrected=True, model="sim", request_id="r2"))
        assert [each.request_id for each in corrected.feedback] == ["r2"]


async def test_a_page_ends_behind_what_exceeds_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(number) for number in range(3)])
        for number in range(3):
            await store.say("acme", f"r{number}", "", WRONG, NOW)
        monkeypatch.setattr(rows, "PAGE_BYTES", 1)
        page = await store.page(FeedbackQuery())
        assert ([each.request_id for each in page.feedback], page.has_more) == (["r2"], True)
        rest = await store.page(FeedbackQuery(after=page.feedback[-1].number))
        assert [each.request_id for each in rest.feedback] == ["r1"]


async def test_sealed_texts_are_not_in_the_file_and_open_with_a_former_key(tmp_path: Path) -> None:
    old, new = os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)
    async with opened(tmp_path, TenantSeal([old], PURPOSE)) as store:
        await store.report([a_request(1)])
        await store.say("acme", "r1", "", WRONG, NOW)
    assert not is_in_files(tmp_path, b"Lyon")
    async with opened(tmp_path, TenantSeal([new, old], PURPOSE)) as store:
        (found,) = (await store.page(FeedbackQuery())).feedback
        assert found.said == WRONG
    async with opened(tmp_path, TenantSeal([new], PURPOSE)) as store:
        assert (await store.page(FeedbackQuery())).feedback == ()


async def test_a_sealed_text_that_was_moved_to_another_request_does_not_open(tmp_path: Path) -> None:
    seal = TenantSeal([os.urandom(KEY_BYTES)], PURPOSE)
    async with opened(tmp_path, seal) as store:
        await store.report([a_request(1), a_request(2)])
        await store.say("acme", "r1", "", WRONG, NOW)
        with sqlite3.connect(tmp_path / FILE) as db:
            db.execute("UPDATE feedback SET request='r2'")
        db.close()
        assert (await store.page(FeedbackQuery())).feedback == ()


async def test_the_key_comes_from_the_variable_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = FeedbackSettings(path=str(tmp_path), encryption_key_env="FEEDBACK_KEY", min_free_disk_bytes=0)
    with pytest.raises(FeedbackError, match="FEEDBACK_KEY"):
        open_store(settings)
    monkeypatch.setenv("FEEDBACK_KEY", base64.b64encode(os.urandom(KEY_BYTES)).decode())
    store = open_store(settings)
    await store.report([a_request(1)])
    await store.say("acme", "r1", "", WRONG, NOW)
    await store.close()
    assert not is_in_files(tmp_path, b"Lyon")


async def test_what_is_erased_is_in_no_file_and_others_keep_theirs(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1), a_request(1, tenant="other")])
        await store.say("acme", "r1", "", WRONG, NOW)
        await store.say("other", "r1", "", RIGHT, NOW)
        assert await store.erase("acme", only_captures=False) == 2
        assert [each.tenant for each in (await store.page(FeedbackQuery())).feedback] == ["other"]
        assert not is_in_files(tmp_path, b"Lyon")
        assert (await store.say("acme", "r1", "", WRONG, NOW)).outcome is Outcome.UNKNOWN


async def test_a_sweep_removes_what_is_too_old(tmp_path: Path) -> None:
    async with opened(tmp_path, keep_days=1, request_ttl_s=60) as store:
        await store.report([a_request(1, at=NOW), a_request(2, at=NOW - 61)])
        await store.say("acme", "r1", "", WRONG, NOW - 2 * 86_400)
        await store.say("acme", "r2", "", RIGHT, NOW)
        await store.sweep(NOW)
        assert [each.request_id for each in (await store.page(FeedbackQuery())).feedback] == ["r2"]
        assert (await store.say("acme", "r1", "", RIGHT, NOW)).outcome is Outcome.KEPT
        assert (await store.say("acme", "r2", "", RIGHT, NOW)).outcome is Outcome.UNKNOWN


async def test_the_tenant_with_the_most_loses_its_oldest(tmp_path: Path) -> None:
    async with opened(tmp_path, max_requests=5, max_per_tenant=2) as store:
        await store.report([a_request(number) for number in range(8)])
        await store.report([a_request(1, tenant="small")])
        for number in range(8):
            await store.say("acme", f"r{number}", "", WRONG, NOW + number)
        await store.say("small", "r1", "", WRONG, NOW)
        await store.sweep(NOW)
        known = [await store.say("acme", f"r{number}", "", WRONG, NOW) for number in range(8)]
        assert [kept.outcome is not Outcome.UNKNOWN for kept in known] == [False] * 4 + [True] * 4
        assert (await store.say("small", "r1", "", WRONG, NOW)).outcome is Outcome.REPLACED
        await store.sweep(NOW)
        assert len((await store.page(FeedbackQuery(tenant="acme"))).feedback) == 2


async def test_on_a_full_disk_nothing_is_stored_and_erasing_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1)])
    async with opened(tmp_path, min_free_disk_bytes=2**60) as store:
        with pytest.raises(FeedbackError, match=r"feedback\.min_free_disk_bytes"):
            await store.say("acme", "r1", "", WRONG, NOW)
        assert await store.erase("acme", only_captures=False) == 1


async def test_what_a_killed_process_had_answered_is_there(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, 'tests')\n"
        "from support.feedback import a_request\n"
        "from deployments.feedback.store.sqlite import SqliteFeedback\n"
        "from serve_app.feedback.values import Said\n"
        "from serve_app.settings import FeedbackSettings\n"
        "async def main():\n"
        "    store = SqliteFeedback(Path(sys.argv[1]), FeedbackSettings(min_free_disk_bytes=0))\n"
        "    await store.report([a_request(1)])\n"
        "    await store.say('acme', 'r1', '', Said(score=0.0), 2000.0)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False, timeout=120)
    assert done.returncode == -9, done.stderr
    async with opened(tmp_path) as store:
        assert len((await store.page(FeedbackQuery())).feedback) == 1


async def test_only_the_user_may_enter_the_folder(tmp_path: Path) -> None:
    async with opened(tmp_path / "kept"):
        assert (tmp_path / "kept").stat().st_mode & 0o077 == 0
        assert (tmp_path / "kept" / FILE).stat().st_mode & 0o077 == 0


async def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1)])
    newer = schema.VERSION + 1
    with closing(sqlite3.connect(tmp_path / schema.FILE)) as db:
        db.execute(f"PRAGMA user_version={newer}")
    with pytest.raises(FeedbackError, match=rf"written by a newer version \({newer}, not {schema.VERSION}\)"):
        async with opened(tmp_path):
            pass
    with closing(sqlite3.connect(tmp_path / schema.FILE)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (newer,)
        assert db.execute("SELECT count(*) FROM requests").fetchone() == (1,)
