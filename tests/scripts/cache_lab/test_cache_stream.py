"""Streams of requests with known answers, and their replay through a gateway."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from cache_lab.oracle import MODEL, Oracle
from cache_lab.pairs import LabelledPair
from cache_lab.replay import Replay, markdown, replay
from cache_lab.stream import RIGHT, UNLABELLED, WRONG, Meanings, Question, answer_to, stream
from support.gateway import gateway
from support.graph import eventually
from support.handles import LocalHandle
from support.semantic_cache import open_semantic_cache

from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.settings import CacheSettings

PAIRS = [
    LabelledPair("a one", "a two", True, "para:x"),
    LabelledPair("a two", "a three", True, "para:x"),
    LabelledPair("b one", "b two", True, "para:x"),
    LabelledPair("a one", "b one", False, "hard:x"),
    LabelledPair("c", "d", False, "diff:x"),
]
DIMENSION = 4


def test_texts_that_pairs_join_have_one_meaning() -> None:
    meanings = Meanings(PAIRS)
    assert meanings["a one"] == meanings["a three"] != meanings["b one"] == meanings["b two"]
    assert len({meanings[text] for text in ("a one", "b one", "c", "d")}) == 4
    assert "e" not in meanings


def test_a_difference_between_two_texts_holds_for_all_texts_of_their_meanings() -> None:
    meanings = Meanings(PAIRS)
    assert meanings.outcome(meanings["a one"], "a three") == RIGHT
    assert meanings.outcome(meanings["b one"], "a one") == WRONG
    assert meanings.outcome(meanings["a two"], "b two") == WRONG
    assert meanings.outcome(meanings["a one"], "d") == UNLABELLED
    assert meanings.outcome(meanings["a one"], "a text of nobody") == UNLABELLED


def test_a_stream_keeps_the_mix_repeats_and_is_the_same_for_a_seed() -> None:
    pairs = [
        LabelledPair(f"q{n}", f"c{n}", n % 2 == 0, "para:x" if n % 2 == 0 else "diff:x") for n in range(200)
    ]
    asked = list(stream(pairs, 3000, seed=1))
    assert asked == list(stream(pairs, 3000, seed=1))
    assert asked != list(stream(pairs, 3000, seed=2))
    same = sum(int(question.text[1:]) % 2 == 0 for question in asked) / len(asked)
    assert same == pytest.approx(0.30 / 0.95, abs=0.03)
    counted = Counter(question.text for question in asked)
    assert counted.most_common(1)[0][1] > 50
    assert len(counted) > 200


def test_a_meaning_has_one_answer_however_it_is_worded() -> None:
    random = Random(1)
    plain = {answer_to(7, random, 0.0) for _ in range(5)}
    assert len(plain) == 1
    varied = {answer_to(7, random, 1.0) for _ in range(20)}
    assert len(varied) > 5
    sentences = set(plain.pop().split(". "))
    assert all(any(sentence.strip(".") in one for sentence in sentences) for one in varied)
    assert len({answer_to(meaning, random, 0.0) for meaning in range(500)}) == 500


def test_outcomes_are_counted() -> None:
    found = Replay("x", ["miss", "exact", "right", "right", "right", "wrong", "wrong, unlabelled"])
    assert found.hit_rate() == pytest.approx(6 / 7)
    assert found.false_share() == pytest.approx(2 / 5)
    assert found.false_share(upto=5) == 0
    values = found.values()
    assert values["false_share_of_all_hits"] == pytest.approx(2 / 6)
    assert "40.0 %" in markdown("pairs", [found])


class Embedder:
    """Texts that begin with the same letter have the same vector."""

    async def describe(self) -> EmbedderInfo:
        return EmbedderInfo("letters", DIMENSION, 64)

    async def embed(self, texts: list[str], tag: str = "") -> list[Embedding]:
        vectors = np.eye(DIMENSION, dtype=np.float32)
        return [Embedding(vectors["abcd".find(text[0])].tobytes(), 2, False) for text in texts]


async def test_a_replay_tells_right_hits_from_wrong_ones(tmp_path: Path) -> None:
    # Texts with one first letter look the same; "a one" and "a other" mean different things.
    pairs = [*PAIRS, LabelledPair("a one", "a other", False, "hard:x")]
    meanings = Meanings(pairs)
    embedder: Any = LocalHandle(Embedder())
    settings: dict[str, Any] = {"decision": "similarity", "race": False, "lookup_budget_ms": 5000.0}
    cache = await open_semantic_cache(CacheSettings(path=str(tmp_path), **settings), embedder)
    handles = {"embedder": embedder, "cache": [LocalHandle(cache)]}
    try:
        with Oracle(pairs, seed=1, variation=0.2).running() as oracle:
            upstream = {"name": "oracle", "url": f"{oracle.url}/v1", "kind": "openai"}
            async with gateway(
                others=[upstream],
                model={"id": MODEL},
                handles=handles,
                embedder={"id": "letters", "source": "letters"},
                cache={"path": str(tmp_path), **settings},
                ready=False,
            ) as running:
                assert await eventually(lambda: ready(running), within_s=10)
                asked = [Question(text, meanings[text]) for text in ("a one", "c")]
                first = await replay("x", running.url, MODEL, asked, meanings)
                assert first.outcomes == ["miss", "miss"]
                await stored(running, 2)
                asked = [Question(text, meanings[text]) for text in ("a one", "a three", "a other", "c", "d")]
                second = await replay("x", running.url, MODEL, asked, meanings)
                assert second.outcomes == ["exact", "right", "wrong", "exact", "miss"]
                assert second.bound == {"blocked_pairs": 0}
                asked = [Question("b two", meanings["b two"])]
                assert (await replay("x", running.url, MODEL, asked, meanings)).outcomes == ["miss"]
                asked = [Question("a three", meanings["c"])]
                third = await replay("x", running.url, MODEL, asked, meanings)
                assert third.values()["unlabelled"] == [["a three", "a one"]]
    finally:
        await cache.close()


async def ready(running: Any) -> bool:
    async with running.http.get("/ready") as response:
        return bool(response.status == 200)


async def stored(running: Any, count: int) -> None:
    async def so() -> bool:
        async with running.http.get("/admin/cache") as response:
            return bool((await response.json())["entries"] == count)

    assert await eventually(so, within_s=5)
