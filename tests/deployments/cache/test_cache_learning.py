"""What the cache learns of its own hits, on a real store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from support.semantic_cache import open_semantic_cache

from deployments.cache.deployment import SemanticCache
from deployments.cache.learning import CacheLearning
from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry, CacheQuery, Hit, Miss, Probe, Selection
from serve_app.cache.normal import vectors_of
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.openai.answers import Answer, Usage
from serve_app.settings import CacheSettings

DIMENSION = 4
NAME = "test"
VECTORS = vectors_of(EmbedderInfo(NAME, DIMENSION, 256))
VECTOR = np.array([1, 0, 0, 0], dtype=np.float32).tobytes()
ASKED, NEAR = "how far is the moon", "how far away is the moon"
RIGHT = "The moon is 384,400 km away."
SAME, OTHER = "It is 384,400 km to the moon.", "It is 150 km to the moon."
ENOUGH = 400
"""Comparisons after which a clean record is believed at a rate of 5 %."""


class Embedder:
    """Every text has the same vector: all answers are near each other."""

    def __init__(self) -> None:
        self.embedded: list[list[str]] = []

    @property
    def describe(self) -> Method:
        return Method(self._describe)

    @property
    def embed(self) -> Method:
        return Method(self._embed)

    async def _describe(self) -> EmbedderInfo:
        return EmbedderInfo(NAME, DIMENSION, 256)

    async def _embed(self, texts: list[str]) -> list[Embedding]:
        self.embedded.append(texts)
        return [Embedding(VECTOR, 4, False) for _ in texts]


class Method:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[SemanticCache]:
    values: dict[str, Any] = {"path": str(folder), "decision": "similarity", **settings}
    cache = await open_semantic_cache(CacheSettings(**values), Embedder(), 60.0)
    try:
        yield cache
    finally:
        await cache.close()


def entry(text: str = ASKED, answer: str = RIGHT) -> CacheEntry:
    now = time.time()
    return CacheEntry(
        uuid4(), "t", "m", "p", text, Answer("m", answer, Usage(1, 1, 2)), now, now + 60, vector=VECTOR
    )


def near(text: str = NEAR) -> CacheQuery:
    return CacheQuery(uuid4(), "p", text, VECTOR)


async def teach(cache: SemanticCache, stored: CacheEntry, fresh: str, times: int = ENOUGH) -> None:
    """Requests near to the entry whose fresh answers are compared with its own."""
    for _ in range(times):
        found = await cache.look_up(near())
        if isinstance(found, Miss) and found.probe is not None:
            await cache.observe(found.probe, fresh)


async def hits(cache: SemanticCache, times: int = 40) -> int:
    return sum([isinstance(await cache.look_up(near()), Hit) for _ in range(times)])


async def test_without_a_bound_a_near_entry_answers_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as cache:
        await cache.put(entry())
        assert await hits(cache) == 40


async def test_nothing_is_given_before_anything_is_known_and_a_probe_says_what_to_learn_from(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        found = await cache.look_up(near())
        made_at = pytest.approx(stored.created_at, rel=0, abs=1e-3)
        assert found == Miss("error-bound", Probe(stored.entry_id, made_at, pytest.approx(1.0)))
        assert (await cache.stats()).refused == {"error-bound": 1}


async def test_answers_that_prove_right_are_given(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        await teach(cache, stored, SAME)
        assert 20 <= await hits(cache) <= 40
        bound = (await cache.stats()).bound
        assert bound["observations"] > 5


def test_a_pair_is_checked_at_its_first_reuse_or_its_fourth_and_not_between() -> None:
    draws = iter((0.99, 0.0))
    embedder: Any = Embedder()
    record = ((0.0, 4000.0, 0.0),)
    learning = CacheLearning(0.05, "verifier", embedder, record, draw=lambda: next(draws))
    stored = entry()
    said = [learning.ask(stored, 0.99, NEAR) for _ in range(4)]
    assert [permission.refusal for permission in said] == [None, None, None, "audit"]
    assert said[-1].probe is not None
    assert said[-1].probe.audited is not None


async def test_answers_that_prove_wrong_are_not_given(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        await teach(cache, stored, OTHER)
        assert await hits(cache) == 0


async def test_what_was_learned_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        await teach(cache, stored, SAME)
        before = (await cache.stats()).bound
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        assert (await cache.stats()).bound == pytest.approx(before, rel=0.01)
        assert await hits(cache) >= 20


async def test_scores_of_another_scale_are_forgotten_and_blocks_are_not(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        await teach(cache, stored, SAME)
        await cache.report(stored.entry_id, False, NEAR)
    store = await EdgeStore.open(str(tmp_path), DIMENSION, VECTORS)
    note = await store.read_note()
    assert note is not None
    await store.write_note(note.replace('"scale":"similarity"', '"scale":"verifier"'))
    await store.close()
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        bound = (await cache.stats()).bound
        assert (bound["observations"], bound["blocked_pairs"]) == (0, 1)


@pytest.mark.parametrize("note", ["{", "[]", "7", '{"population": 3}', '{"blocked": 7}', "{}"])
async def test_a_note_that_cannot_be_read_does_not_stop_the_cache(tmp_path: Path, note: str) -> None:
    store = await EdgeStore.open(str(tmp_path), DIMENSION, VECTORS)
    await store.write_note(note)
    await store.close()
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stats = await cache.stats()
        assert stats.error is None
        assert stats.bound["observations"] == 0


async def test_a_bound_that_is_switched_off_and_on_goes_on_where_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        await teach(cache, stored, SAME)
        before = (await cache.stats()).bound
    async with opened(tmp_path) as cache:
        await cache.report(stored.entry_id, False, "another text")
        assert (await cache.stats()).bound == {"blocked_pairs": 1}
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        after = (await cache.stats()).bound
        assert after["observations"] == pytest.approx(before["observations"])
        assert after["blocked_pairs"] == 1


async def test_a_pair_that_was_reported_is_blocked_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as cache:
        stored = entry()
        await cache.put(stored)
        assert await cache.report(stored.entry_id, False, NEAR) == 0
        assert (await cache.look_up(near())) == Miss("blocked")
        assert isinstance(await cache.look_up(near("how far is the moon, roughly")), Hit)
    async with opened(tmp_path) as cache:
        assert (await cache.look_up(near())) == Miss("blocked")
        await cache.report(stored.entry_id, True, NEAR)
        assert isinstance(await cache.look_up(near()), Hit)


async def test_a_report_without_a_text_drops_the_entry(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        assert await cache.report(stored.entry_id, False, None) == 1
        assert await cache.look_up(near()) == Miss()


async def test_a_fresh_answer_teaches_nothing_about_an_entry_that_has_another_answer_now(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        found = await cache.look_up(near())
        assert isinstance(found, Miss)
        assert found.probe is not None
        await cache.delete(Selection(entry_id=stored.entry_id))
        await cache.observe(found.probe, SAME)
        assert (await cache.stats()).bound["observations"] == 0


async def test_another_answer_to_the_same_text_shows_how_noisy_the_comparison_is(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        for answer in (RIGHT, OTHER) * 20:
            again = CacheEntry(
                stored.entry_id,
                "t",
                "m",
                "p",
                ASKED,
                Answer("m", answer, Usage(1, 1, 2)),
                time.time(),
                time.time() + 60,
                vector=VECTOR,
            )
            await cache.put(again)
        assert (await cache.stats()).bound["false_alarm"] > 0.8


async def test_what_is_known_of_an_entry_is_not_sent_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path, max_error_rate=0.05) as cache:
        stored = entry()
        await cache.put(stored)
        await teach(cache, stored, SAME)
        found = await cache.look_up(CacheQuery(stored.entry_id, "p", ASKED))
        assert isinstance(found, Hit)
        assert not found.entry.evidence
        kept = await cache.select(Selection(tenant="t"), 1)
        assert kept[0].evidence
