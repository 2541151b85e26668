"""The embedded store, on a real Qdrant engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest

from deployments.store import StoreError
from deployments.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry, Selection
from serve_app.openai.answers import Answer, Usage

DIMENSION = 8
EMBEDDER = "test:float32"


def unit(*values: float) -> bytes:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(values)] = values
    return (vector / np.linalg.norm(vector)).tobytes()


def entry(**changes: object) -> CacheEntry:
    base = CacheEntry(
        entry_id=uuid4(),
        tenant="t",
        model="m",
        partition="p",
        text="q",
        answer=Answer("m", "ünïcode\n", Usage(1, 2, 3), stop_reason=None),
        created_at=100.0,
        expires_at=200.0,
        tags=("red", "blue"),
        vector=unit(1),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    store = EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    yield store
    store.close()


def test_an_entry_comes_back_as_it_was_stored(store: EdgeStore) -> None:
    stored = entry()
    store.put(stored)
    assert store.get(stored.entry_id) == replace(stored, vector=None)
    assert store.get(uuid4()) is None


def test_the_nearest_entry_is_found_inside_its_partition_only(store: EdgeStore) -> None:
    near, far, other = entry(vector=unit(1, 0.1)), entry(vector=unit(0, 1)), entry(partition="other")
    for stored in (near, far, other):
        store.put(stored)
    match = store.nearest("p", unit(1), now=150.0, oldest=0.0)
    assert match is not None
    assert match.entry.entry_id == near.entry_id
    assert match.similarity == pytest.approx(1 / np.sqrt(1.01), abs=1e-4)
    assert store.nearest("nobody", unit(1), now=150.0, oldest=0.0) is None


@pytest.mark.parametrize(
    ("now", "oldest", "found"), [(199.0, 100.0, True), (200.0, 0.0, False), (150.0, 101.0, False)]
)
def test_expired_and_too_old_entries_are_not_near(
    store: EdgeStore, now: float, oldest: float, found: bool
) -> None:
    store.put(entry())
    assert (store.nearest("p", unit(1), now, oldest) is not None) is found


def test_an_entry_without_a_vector_is_found_by_id_only(store: EdgeStore) -> None:
    stored = entry(vector=None)
    store.put(stored)
    assert store.get(stored.entry_id) == stored
    assert store.nearest("p", unit(1), 150.0, 0.0) is None


def test_the_same_id_is_replaced(store: EdgeStore) -> None:
    first = entry()
    store.put(first)
    store.put(replace(first, text="changed"))
    assert store.count() == 1
    found = store.get(first.entry_id)
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
def test_entries_are_selected_and_deleted(store: EdgeStore, selection: Selection, expected: int) -> None:
    for stored in (entry(), entry(entry_id=UUID(int=7), model="n"), entry(tenant="u", tags=("green",))):
        store.put(stored)
    assert len(store.select(selection, 10)) == expected
    assert store.delete(selection) == expected
    assert store.count() == 3 - expected


def test_expired_entries_are_swept(store: EdgeStore) -> None:
    store.put(entry(expires_at=150.0))
    store.put(entry(expires_at=250.0))
    assert store.delete_expired(200.0) == 1
    assert store.count() == 1


def test_the_oldest_entries_go_first(store: EdgeStore) -> None:
    ids = [uuid4() for _ in range(5)]
    for age, entry_id in enumerate(ids):
        store.put(entry(entry_id=entry_id, created_at=100.0 + age))
    store.delete_oldest(2)
    assert [store.get(entry_id) is not None for entry_id in ids] == [False, False, True, True, True]


def test_entries_survive_a_restart(tmp_path: Path) -> None:
    stored = entry()
    first = EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    first.put(stored)
    first.close()
    again = EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    assert again.get(stored.entry_id) is not None
    again.close()


def test_another_embedder_sees_none_of_the_entries(store: EdgeStore, tmp_path: Path) -> None:
    stored = entry()
    store.put(stored)
    other = EdgeStore.open(str(tmp_path), DIMENSION, "another:float32")
    assert other.count() == 0
    other.close()


def test_a_folder_that_is_open_already_is_refused_with_its_name(store: EdgeStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=str(tmp_path)):
        EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)


def test_a_vector_of_another_dimension_is_refused(store: EdgeStore) -> None:
    with pytest.raises(StoreError, match="dim"):
        store.put(entry(vector=np.ones(3, dtype=np.float32).tobytes()))
