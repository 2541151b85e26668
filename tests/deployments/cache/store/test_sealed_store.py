"""What lies in a store that is encrypted, and who can read it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from store_samples import DIMENSION, EMBEDDER, entry, unit

from deployments.cache.store import StoreError, open_store
from deployments.cache.store.edge import EdgeStore
from deployments.cache.store.sealed import SealedStore, Sealer, sealer_from
from serve_app.cache.entry import CacheEntry, Selection
from serve_app.openai.answers import Answer, Usage
from serve_app.settings import CacheSettings

OLD, NEW = b"o" * 32, b"n" * 32
ENV = "CACHE_KEY"
SECRET = replace(entry(), text="my salary question", answer=Answer("m", "12,345 a month", Usage(1, 2, 3)))


def key(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[EdgeStore]:
    store = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    yield store
    await store.close()


async def test_no_text_lies_in_the_store(plain: EdgeStore) -> None:
    await SealedStore(plain, Sealer([NEW])).put(SECRET)
    (found,) = await plain.select(Selection(tenant="t"), 10)
    for hidden in ("salary", "12,345"):
        assert hidden not in repr(found)
    assert found.answer.text == ""


async def test_no_text_lies_in_the_files(plain: EdgeStore, tmp_path: Path) -> None:
    await SealedStore(plain, Sealer([NEW])).put(SECRET)
    await plain.close()
    written = await asyncio.to_thread(all_bytes, tmp_path)
    assert b"blue" in written, "a tag is not sealed"
    assert b"salary" not in written


async def test_another_key_opens_nothing(plain: EdgeStore) -> None:
    await SealedStore(plain, Sealer([NEW])).put(SECRET)
    other = SealedStore(plain, Sealer([OLD]))
    assert await other.get(SECRET.entry_id) is None
    assert await other.nearest("p", unit(1), 150.0, 0.0, 3) == []
    assert await other.select(Selection(tenant="t"), 3) == []
    assert await other.delete(Selection(tenant="t")) == 1


async def test_a_key_can_be_changed_without_losing_what_is_there(plain: EdgeStore) -> None:
    await SealedStore(plain, Sealer([OLD])).put(SECRET)
    both = SealedStore(plain, Sealer([NEW, OLD]))
    assert await both.get(SECRET.entry_id) == replace(SECRET, vector=None)
    await both.put(SECRET)
    assert await SealedStore(plain, Sealer([NEW])).get(SECRET.entry_id) == replace(SECRET, vector=None)


@pytest.mark.parametrize(
    "moved",
    [
        {"entry_id": uuid4()},
        {"tenant": "u"},
        {"partition": "q"},
        {"model": "n"},
        {"text": "AAAA"},
        {"text": "…"},
    ],
)
def test_a_sealed_text_that_was_moved_or_changed_does_not_open(moved: dict[str, object]) -> None:
    sealer = Sealer([NEW])
    sealed = sealer.seal(SECRET)
    assert sealer.open(sealed) == SECRET
    assert sealer.open(replace(sealed, **moved)) is None  # type: ignore[arg-type]


def test_the_same_text_is_sealed_differently_each_time() -> None:
    sealer = Sealer([NEW])
    assert sealer.seal(SECRET).text != sealer.seal(SECRET).text


def test_keys_come_from_a_variable() -> None:
    sealed = sealer_from(ENV, {ENV: key(OLD)}).seal(SECRET)
    opened: CacheEntry | None = sealer_from(ENV, {ENV: f" {key(NEW)} , {key(OLD)}\n"}).open(sealed)
    assert opened == SECRET


@pytest.mark.parametrize("value", ["", "short", key(b"x" * 16), f"{key(NEW)},", "äöü" * 20])
def test_a_key_that_is_none_is_named_and_not_shown(value: str) -> None:
    with pytest.raises(StoreError, match=ENV) as raised:
        sealer_from(ENV, {ENV: value})
    assert not value or value not in str(raised.value)


async def test_sealed_and_plain_entries_have_places_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV, key(NEW))
    plain = await open_store(CacheSettings(path=str(tmp_path)), DIMENSION, EMBEDDER)
    await plain.put(SECRET)
    sealed = await open_store(CacheSettings(path=str(tmp_path), encryption_key_env=ENV), DIMENSION, EMBEDDER)
    assert plain.location != sealed.location
    assert await sealed.get(SECRET.entry_id) is None
    await plain.close()
    await sealed.close()
