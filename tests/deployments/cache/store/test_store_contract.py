"""What every store keeps, on a real Qdrant engine: embedded, and behind a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import numpy as np
import pytest
from store_samples import BackEnd, entry, unit

from deployments.cache.store import CacheStore, StoreError
from deployments.cache.store.base import Evicted
from deployments.cache.store.payload import BATCH
from serve_app.cache.bound import EntryEvidence, Observation
from serve_app.cache.entry import Annotation, Selection
from serve_app.cache.eviction import Volume

AT_ONCE = 50
"""Writes at the same time. A thousand at once would test how long one waits on a busy machine."""


async def test_an_entry_comes_back_as_it_was_stored(store: CacheStore) -> None:
    stored = entry()
    await store.put(stored)
    assert await store.get(stored.entry_id) == replace(stored, vector=None)
    assert await store.get(uuid4()) is None


async def test_the_nearest_entries_of_a_partition_are_found_best_first(store: CacheStore) -> None:
    near, next_near, far = entry(vector=unit(1, 0.1)), entry(vector=unit(1, 1)), entry(vector=unit(0, 1))
    for stored in (far, next_near, near, entry(partition="other")):
        await store.put(stored)
    matches = await store.nearest("p", unit(1), now=150.0, oldest=0.0, limit=2)
    assert [match.entry for match in matches] == [replace(one, vector=None) for one in (near, next_near)]
    expected = [1 / np.sqrt(1.01), 1 / np.sqrt(2)]
    assert [match.similarity for match in matches] == pytest.approx(expected, abs=1e-4)
    assert await store.nearest("nobody", unit(1), now=150.0, oldest=0.0, limit=2) == []


@pytest.mark.parametrize(("now", "oldest", "found"), [(199.0, 100.0, 1), (200.0, 0.0, 0), (150.0, 101.0, 0)])
async def test_expired_and_too_old_entries_are_not_near(
    store: CacheStore, now: float, oldest: float, found: int
) -> None:
    await store.put(entry())
    assert len(await store.nearest("p", unit(1), now, oldest, 3)) == found


async def test_an_entry_without_a_vector_is_found_by_id_only(store: CacheStore) -> None:
    stored = entry(vector=None)
    await store.put(stored)
    assert await store.get(stored.entry_id) == stored
    assert await store.nearest("p", unit(1), 150.0, 0.0, 3) == []


async def test_the_same_id_is_replaced(store: CacheStore) -> None:
    first = entry()
    await store.put(first)
    await store.put(replace(first, text="changed"))
    assert await store.count() == 1
    found = await store.get(first.entry_id)
    assert found is not None
    assert found.text == "changed"


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(tenant="t"), 2),
        (Selection(tenant="u"), 1),
        (Selection(model="n"), 1),
        (Selection(tag="green"), 1),
        (Selection(tag="red"), 2),
        (Selection(tenant="t", tag="green"), 0),
        (Selection(entry_id=UUID(int=7)), 1),
        (Selection(entry_id=UUID(int=8)), 0),
    ],
)
async def test_entries_are_selected_and_deleted(
    store: CacheStore, selection: Selection, expected: int
) -> None:
    for stored in (entry(), entry(entry_id=UUID(int=7), model="n"), entry(tenant="u", tags=("green",))):
        await store.put(stored)
    assert len(await store.select(selection, 10)) == expected
    assert await store.delete(selection) == expected
    assert await store.count() == 3 - expected


async def test_no_more_are_selected_than_asked_for(store: CacheStore) -> None:
    for _ in range(3):
        await store.put(entry())
    assert len(await store.select(Selection(tenant="t"), 2)) == 2


async def test_expired_entries_are_swept(store: CacheStore) -> None:
    for expires_at in (150.0, 200.0, 250.0):
        await store.put(entry(expires_at=expires_at))
    assert await store.delete_expired(200.0) == 2
    assert await store.count() == 1


async def test_a_tenants_entries_of_least_value_go_first(store: CacheStore) -> None:
    ids = [uuid4() for _ in range(5)]
    for number, entry_id in enumerate(ids):
        await store.put(entry(entry_id=entry_id, value=1.0 + number))
    other = entry(tenant="u", value=0.5)
    await store.put(other)
    size = (await store.usage())["u"].size  # they are all alike
    assert size >= other.size
    assert await store.evict("t", Volume(2)) == Evicted(Volume(2, 2 * size), 2.0)
    left = [await store.get(entry_id) is not None for entry_id in ids]
    assert left == [False, False, True, True, True]
    assert await store.evict("t", Volume(0, size + 1)) == Evicted(Volume(2, 2 * size), 4.0)
    assert await store.usage() == {"t": Volume(1, size), "u": Volume(1, size)}
    assert (await store.evict("t", Volume(10))).volume == Volume(1, size)
    assert await store.evict("t", Volume(10)) == Evicted()
    assert await store.get(other.entry_id) is not None


async def test_usage_and_eviction_go_over_many_pages(store: CacheStore) -> None:
    count = BATCH + 10
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        await asyncio.gather(*(store.put(entry(value=float(number))) for number in numbers))
    assert (await store.usage())["t"].entries == count
    assert (await store.evict("t", Volume(BATCH + 5))).volume.entries == BATCH + 5
    assert (await store.usage())["t"].entries == 5


async def test_all_entries_are_seen_page_by_page(store: CacheStore) -> None:
    stored = [entry(text=str(number)) for number in range(7)]
    for one in stored:
        await store.put(one)
    await store.write_note("no entry")
    seen, after = await store.page(None, 3)
    assert len(seen) <= 3
    while after is not None:
        page, after = await store.page(after, 3)
        seen += page
    assert sorted(one.text for one in seen) == [str(number) for number in range(7)]


async def test_what_is_known_of_an_entry_changes_and_nothing_else_does(store: CacheStore) -> None:
    stored = entry()
    await store.put(stored)
    evidence = EntryEvidence().with_observation(Observation(0.5, True))
    await store.annotate(stored.entry_id, Annotation(evidence=evidence))
    await store.annotate(stored.entry_id, Annotation(uses=7, value=2.5))
    expected = replace(stored, vector=None, evidence=evidence, uses=7, value=2.5)
    assert await store.get(stored.entry_id) == expected
    assert [match.entry for match in await store.nearest("p", unit(1), 150.0, 0.0, 1)] == [expected]


async def test_an_entry_that_is_not_there_is_not_made_by_what_is_known_of_it(store: CacheStore) -> None:
    missing = uuid4()
    await store.annotate(missing, Annotation(uses=3))
    assert await store.get(missing) is None
    assert await store.count() == 0


async def test_the_note_is_no_entry_and_survives_a_restart(back_end: BackEnd) -> None:
    store = await back_end.open()
    assert await store.read_note() is None
    stored = entry()
    await store.put(stored)
    await store.write_note("first")
    await store.write_note('{"what": "was lärned"}')
    assert await store.delete_expired(1e12) == 1
    assert await store.usage() == {}
    await store.close()
    again = await back_end.open()
    assert await again.read_note() == '{"what": "was lärned"}'


async def test_many_calls_at_once_do_not_mix(store: CacheStore) -> None:
    stored = [entry(text=f"text {number}", vector=unit(1, number)) for number in range(40)]
    await asyncio.gather(*(store.put(one) for one in stored))
    found = await asyncio.gather(*(store.get(one.entry_id) for one in stored))
    assert found == [replace(one, vector=None) for one in stored]


async def test_entries_survive_a_restart(back_end: BackEnd) -> None:
    stored = entry()
    first = await back_end.open()
    await first.put(stored)
    await first.close()
    again = await back_end.open()
    assert await again.get(stored.entry_id) == replace(stored, vector=None)
    assert len(await again.nearest("p", unit(1), 150.0, 0.0, 3)) == 1


async def test_another_embedder_sees_none_of_the_entries(back_end: BackEnd) -> None:
    stored = entry()
    await (await back_end.open()).put(stored)
    other = await back_end.open(embedder="another:float32")
    assert await other.count() == 0
    assert await other.get(stored.entry_id) is None


async def test_a_vector_of_another_dimension_is_refused(store: CacheStore) -> None:
    vector = np.ones(3, dtype=np.float32).tobytes()
    with pytest.raises(StoreError, match="dim"):
        await store.put(entry(vector=vector))
    with pytest.raises(StoreError, match="dim"):
        await store.nearest("p", vector, 150.0, 0.0, 3)


async def test_a_closed_store_says_so_and_closes_twice(store: CacheStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.count()
