"""Captured requests in the file: sealed, bounded, each tenant's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from sqlite3 import SQLITE_DENY, SQLITE_OK
from typing import Any

import msgspec
import pytest
from support.feedback import a_request

from deployments.feedback.store import captures
from deployments.feedback.store.sqlite import SqliteFeedback
from deployments.platform.sealing import KEY_BYTES, TenantSeal
from serve_app.feedback.captured import Capture, CaptureQuery, CaptureReply, Content
from serve_app.feedback.values import FeedbackError, FeedbackQuery, Said
from serve_app.settings import FeedbackSettings

NOW = 2000.0
SEAL = TenantSeal([os.urandom(KEY_BYTES)], b"test")
MESSAGES = [{"role": "user", "content": "the capital of Gondor?"}]


@asynccontextmanager
async def opened(
    folder: Path, seal: TenantSeal | None = SEAL, least_free: int = 0, **capture: Any
) -> AsyncIterator[SqliteFeedback]:
    settings = FeedbackSettings.model_validate(
        {
            "min_free_disk_bytes": least_free,
            "encryption_key_env": "KEY",
            "capture": {"tenants": {"acme": 1.0}, **capture},
        }
    )
    store = SqliteFeedback(folder, settings, seal)
    try:
        yield store
    finally:
        await store.close()


def a_capture(number: int = 1, tenant: str = "acme", text: str = "Minas Tirith") -> Capture:
    content = Content(request={"model": "sim", "messages": MESSAGES}, text=text)
    return Capture(
        tenant=tenant,
        request_id=f"r{number}",
        at=1000.0 + number,
        endpoint="/v1/chat/completions",
        model="sim",
        content=msgspec.msgpack.encode(content),
    )


def ids(page: Any) -> list[str]:
    return [each.request_id for each in page.captures]


async def test_what_is_captured_is_found_with_its_request_and_is_sealed_in_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1, total_ms=12.0)])
        assert await store.capture([a_capture(1), a_capture(2)]) == CaptureReply()
        first, second = (await store.captures(CaptureQuery())).captures
        assert first.content == a_capture(1).content
        assert first.request is not None
        assert first.request.total_ms == 12.0
        assert second.request is None
    files = await asyncio.to_thread(lambda: b"".join(path.read_bytes() for path in tmp_path.iterdir()))
    assert b"Gondor" not in files
    assert b"Minas" not in files


async def test_pages_end_at_their_limit_and_at_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.capture([a_capture(number) for number in range(5)])
        page = await store.captures(CaptureQuery(limit=3))
        assert ids(page) == ["r0", "r1", "r2"]
        assert page.following is not None
        assert ids(await store.captures(CaptureQuery(after=page.following))) == ["r3", "r4"]
        monkeypatch.setattr(captures, "PAGE_BYTES", 1)
        assert ids(await store.captures(CaptureQuery())) == ["r0"]


async def test_what_no_key_opens_is_passed_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.capture([a_capture(1), a_capture(2)])
    other = TenantSeal([os.urandom(KEY_BYTES)], b"test")
    async with opened(tmp_path, other) as store:
        await store.capture([a_capture(3)])
        page = await store.captures(CaptureQuery(limit=2))
        assert (ids(page), page.following) == ([], 2)
        assert ids(await store.captures(CaptureQuery(after=2))) == ["r3"]


async def test_when_there_is_no_room_nothing_is_kept_until_there_is(tmp_path: Path) -> None:
    async with opened(tmp_path, max_bytes=1024, ttl_s=100) as store:
        assert await store.capture([a_capture(1, text="x" * 500)]) == CaptureReply()
        assert await store.capture([a_capture(2, text="x" * 900)]) == CaptureReply(full=True)
        assert ids(await store.captures(CaptureQuery())) == ["r1"]
        assert await store.erase("acme", only_captures=True) == 1
        assert await store.capture([]) == CaptureReply()
        assert await store.capture([a_capture(2, text="x" * 500)]) == CaptureReply()
        await store.sweep(NOW)  # it expires
        assert ids(await store.captures(CaptureQuery())) == []


async def test_on_a_full_disk_nothing_is_captured(tmp_path: Path) -> None:
    async with opened(tmp_path, least_free=2**60) as store:
        with pytest.raises(FeedbackError, match=r"min_free_disk_bytes"):
            await store.capture([a_capture(1)])


async def test_a_capture_whose_commit_failed_takes_no_room(tmp_path: Path) -> None:
    async with opened(tmp_path, max_bytes=1024) as store:
        assert await store.capture([a_capture(1, text="x" * 200)]) == CaptureReply()
        store._writing.set_authorizer(lambda action, what, *_: SQLITE_DENY if what == "COMMIT" else SQLITE_OK)
        with pytest.raises(FeedbackError):
            await store.capture([a_capture(2, text="x" * 400)])
        store._writing.set_authorizer(None)
        assert await store.capture([a_capture(3, text="x" * 400)]) == CaptureReply()
        assert ids(await store.captures(CaptureQuery())) == ["r1", "r3"]


async def test_erasing_captures_leaves_feedback_and_other_tenants(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1)])
        await store.say("acme", "r1", "", Said(score=0.0), NOW)
        await store.capture([a_capture(1), a_capture(1, "other")])
        assert await store.erase("acme", only_captures=True) == 1
        assert [each.tenant for each in (await store.captures(CaptureQuery())).captures] == ["other"]
        assert len((await store.page(FeedbackQuery())).feedback) == 1
        assert await store.erase("other", only_captures=False) == 1


async def test_a_correction_of_a_captured_request_knows_what_was_asked(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.report([a_request(1), a_request(2)])
        await store.capture([a_capture(1)])
        for number in (1, 2):
            await store.say("acme", f"r{number}", "", Said(correction="Osgiliath"), NOW)
        second, first = (await store.page(FeedbackQuery())).feedback
        assert (first.said.messages, second.said.messages) == (MESSAGES, None)


async def test_without_a_key_nothing_is_captured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="encryption_key_env"):
        FeedbackSettings.model_validate({"capture": {"tenants": {"acme": 1.0}}})
    async with opened(tmp_path, None) as store:
        with pytest.raises(FeedbackError):
            await store.capture([a_capture(1)])
        assert ids(await store.captures(CaptureQuery())) == []


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_is_between_nothing_and_all(share: float) -> None:
    given = {"encryption_key_env": "KEY", "capture": {"tenants": {"acme": share}}}
    with pytest.raises(ValueError, match="no share"):
        FeedbackSettings.model_validate(given)
