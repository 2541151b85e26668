"""The sketch: which of many vectors are near, by a few bits of each."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest

from deployments.cache.store.edge_sketch import CANDIDATES, RECORD, SLACK, UNSEARCHED, Sketch

DIMENSION = 96
MANY = 3000
EVER = 1e12

Vectors = npt.NDArray[np.float32]


def vectors(count: int, seed: int = 1) -> Vectors:
    """Unit vectors in clusters, as texts' vectors are."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((count // 20 + 1, DIMENSION))
    noise = 0.7 * random.standard_normal((count, DIMENSION))
    found = centres[random.integers(len(centres), size=count)] + noise
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def sketch(found: Vectors, partition: str = "p", expires: float = EVER, search_from: int = 100) -> Sketch:
    made = Sketch(DIMENSION, search_from)
    put(made, found, partition=partition, expires=expires)
    return made


def put(
    into: Sketch,
    found: Iterable[npt.NDArray[np.float32]],
    *,
    first: int = 0,
    partition: str = "p",
    created: float = 0.0,
    expires: float = EVER,
) -> None:
    for number, vector in enumerate(found, first):
        into.put(into.record(name(number), partition, created, expires, vector.tobytes()))


def name(number: int) -> bytes:
    return UUID(int=number + 1).bytes


def near(
    of: Sketch, vector: npt.NDArray[np.float32], now: float = 1.0, oldest: float = 0.0, limit: int = 3
) -> set[int] | None:
    """The numbers of the candidates."""
    found = of.near("p", vector.tobytes(), now, oldest, limit)
    return None if found is None else {one.int - 1 for one in found}


def nearest(found: Vectors, vector: npt.NDArray[np.float32], count: int) -> list[int]:
    order: list[int] = np.argsort(-(found @ vector))[:count].tolist()
    return order


def test_the_nearest_vectors_are_among_the_candidates() -> None:
    stored = vectors(MANY)
    asked = stored[:100] + 0.3 * vectors(100, seed=2)
    made = sketch(stored)
    hits = [len(set(nearest(stored, one, 3)) & (near(made, one) or set())) for one in asked]
    assert sum(hits) >= 0.98 * 3 * len(asked)


def test_no_more_candidates_than_the_engine_can_compare_at_once() -> None:
    made = sketch(vectors(MANY))
    found = near(made, vectors(1)[0])
    assert found is not None
    assert len(found) == CANDIDATES
    assert len(near(made, vectors(1)[0], limit=100) or ()) == 1600


def test_a_small_partition_is_left_to_the_engine() -> None:
    stored = vectors(201)
    assert near(sketch(stored, search_from=201), stored[0]) is not None
    assert near(sketch(stored, search_from=202), stored[0]) is None
    assert near(sketch(stored, partition="other"), stored[0]) is None
    assert near(sketch(stored[:CANDIDATES], search_from=1), stored[0]) is None  # these are all candidates


def test_partitions_do_not_meet() -> None:
    stored = vectors(400)
    made = sketch(stored[:200])
    put(made, stored[200:], first=200, partition="other")
    found = near(made, stored[300])
    assert found is not None
    assert max(found) < 200


def test_expired_and_too_old_entries_are_no_candidates() -> None:
    stored = vectors(600)
    made = sketch(stored[:300], expires=50.0)
    put(made, stored[300:], first=300, created=40.0, expires=100.0)
    assert near(made, stored[0], now=49.0) is not None
    found = near(made, stored[0], now=50.0)
    assert found is not None
    assert min(found) >= 300
    found = near(made, stored[0], oldest=40.0)
    assert found is not None
    assert min(found) >= 300


def test_where_too_few_are_left_the_engine_searches_alone() -> None:
    stored = vectors(300)
    made = sketch(stored, expires=50.0)
    put(made, stored[:2], first=300)
    assert near(made, stored[0], now=50.0, limit=2) == {300, 301}
    assert near(made, stored[0], now=50.0, limit=3) is None


def test_removed_entries_are_no_candidates() -> None:
    stored = vectors(300)
    made = sketch(stored)
    assert 7 in (near(made, stored[7]) or ())
    gone = made.drop([name(7), name(8), name(999)])
    assert len(gone) == 2
    assert len(made) == 298
    assert name(7) not in made
    assert not {7, 8} & (near(made, stored[7]) or {7})


def test_an_entry_that_is_put_again_counts_once_with_its_new_times() -> None:
    stored = vectors(300)
    made = sketch(stored, expires=50.0)
    near(made, stored[0])
    put(made, stored)
    assert len(made) == 300
    found = near(made, stored[0], now=60.0)
    assert found is not None
    assert 0 in found


def test_an_entry_without_a_vector_is_counted_and_never_near() -> None:
    stored = vectors(300)
    made = sketch(stored)
    record = made.record(name(500), "p", 0.0, EVER, None)
    assert record["partition"][0] == UNSEARCHED
    made.put(record)
    assert len(made) == 301
    assert 500 not in (near(made, np.zeros(DIMENSION, np.float32)) or ())


def test_a_vector_of_another_dimension_is_refused() -> None:
    made = sketch(vectors(300))
    vector = np.ones(3, np.float32).tobytes()
    with pytest.raises(ValueError, match=f"dimension is 3, the store's {DIMENSION}"):
        made.record(name(1), "p", 0.0, EVER, vector)
    with pytest.raises(ValueError, match="dimension"):
        made.near("p", vector, 1.0, 0.0, 3)


def test_entries_that_come_after_a_search_are_found_by_the_next() -> None:
    stored = vectors(900)
    made = sketch(stored[:200])
    near(made, stored[0])
    put(made, stored[200:], first=200)
    assert all(number in (near(made, stored[number]) or ()) for number in range(200, 900, 7))


def test_nothing_is_lost_when_what_is_gone_is_forgotten() -> None:
    stored = vectors(4 * SLACK)
    made = sketch(stored)
    made.drop(name(number) for number in range(4 * SLACK) if number % 4)
    assert made.is_wasteful
    records = made.compact()
    assert len(records) == len(made) == SLACK
    assert not made.is_wasteful
    assert all(number in (near(made, stored[number]) or ()) for number in range(0, 4 * SLACK, 40))
    put(made, stored[1:2], first=1)
    assert 1 in (near(made, stored[1]) or ())


def test_a_history_ends_where_its_last_records_say() -> None:
    stored = vectors(200)
    made = Sketch(DIMENSION, 100)
    records = [made.record(name(number), "p", 0.0, EVER, one.tobytes()) for number, one in enumerate(stored)]
    gone = np.zeros(1, RECORD)
    gone["id"] = records[3]["id"]
    again = made.record(name(4), "p", 5.0, 9.0, stored[4].tobytes())
    made.load(np.concatenate([*records, gone, again]))
    assert len(made) == 199
    assert near(made, stored[3], now=1.0, limit=1) is not None
    assert name(3) not in made
    assert 4 in (near(made, stored[4], oldest=4.0, limit=1) or ())
    assert near(made, stored[4], oldest=4.0, limit=2) is None
    made.load(np.zeros(0, RECORD))
    assert len(made) == 0
    put(made, stored)
    assert len(made) == 200


def test_codes_are_the_same_in_every_process() -> None:
    """They are kept on disk: other planes need another file name."""
    vector = np.linspace(-1, 1, DIMENSION).astype(np.float32)
    record = Sketch(DIMENSION, 1).record(name(1), "p", 0.0, EVER, vector.tobytes())
    assert record["code"][0].tobytes().hex()[:32] == "bd22fcb1eadc2aee87a3dd35cadf618c"
