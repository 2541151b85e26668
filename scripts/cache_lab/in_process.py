"""The replay without servers: the decision, the finder and the learned bound of service, in one process.

One request after the other, a seeded random number for each audit, no clock: two runs of the same code give
the same figures. It is where the bound is judged, because here both its permissions and its refusals are
known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID, uuid5

import numpy as np

from cache_lab.cosines import Vectors
from cache_lab.replay import EXACT, MISS, BoundRecord, Replay
from cache_lab.stream import UNLABELLED, Meanings, Question, answer_to
from deployments.cache.finder import EntryFinder
from deployments.cache.learning import CacheLearning, Permission
from deployments.cache.store.base import Match
from serve_app.cache.bound import LearnedBound
from serve_app.cache.decision import Decision, Verdict
from serve_app.cache.decision.contract import Reading
from serve_app.cache.entry import Annotation, CacheEntry, CacheQuery, Hit, Miss, Probe
from serve_app.embedding import Embedding
from serve_app.openai.answers import Answer, Usage
from serve_app.settings import CacheSettings

PARTITION = "replay"
FOREVER = float("inf")
NAMES = UUID(int=0)


class ListStore:
    """The part of a cache's store that a look-up needs, compared exactly."""

    def __init__(self, dimension: int, room: int) -> None:
        self._vectors = np.zeros((room, dimension), np.float32)
        self._order: list[UUID] = []
        self._entries: dict[UUID, CacheEntry] = {}

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        return self._entries.get(entry_id)

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        similar = self._vectors[: len(self._order)] @ np.frombuffer(vector, np.float32)
        best = np.argsort(-similar, kind="stable")[:limit]
        return [Match(self._entries[self._order[row]], float(similar[row])) for row in best]

    async def put(self, entry: CacheEntry) -> None:
        if entry.vector is not None and entry.entry_id not in self._entries:
            self._vectors[len(self._order)] = np.frombuffer(entry.vector, np.float32)
            self._order.append(entry.entry_id)
        self._entries[entry.entry_id] = entry

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        if annotation.evidence is not None:
            self._entries[entry_id] = replace(self._entries[entry_id], evidence=annotation.evidence)


class Remembered:
    """A decision that judges each pair once: a stream repeats its pairs, and a verdict never changes."""

    is_slow = False

    def __init__(self, decision: Decision) -> None:
        self.scale, self.measure, self.record = decision.scale, decision.measure, decision.record
        self.read = decision.read
        self._judge = decision.judge
        self.verdicts: dict[tuple[str, str], Verdict] = {}

    def judge(
        self, question: Reading, candidate: Reading, similarity: float, threshold: float | None = None
    ) -> Verdict:
        pair = question.text, candidate.text
        if pair not in self.verdicts:
            self.verdicts[pair] = self._judge(question, candidate, similarity, threshold)
        return self.verdicts[pair]


class WatchedLearning(CacheLearning):
    """Notes what the bound said of each entry that the decision accepted, beside the truth."""

    def watch(self, meanings: Meanings) -> BoundRecord:
        self._meanings, self._asked = meanings, BoundRecord()
        return self._asked

    def expected_error(self, score: float) -> float:
        bound = self._policy
        return bound.population.mean(score) if isinstance(bound, LearnedBound) else 0.0

    def ask(self, entry: CacheEntry, score: float, text: str) -> Permission:
        expected = self.expected_error(score)
        permission = super().ask(entry, score, text)
        self._asked.note(
            permission.refusal, self._meanings.outcome(self._meanings[text], entry.text), expected
        )
        return permission


class _Handle:
    """The embedder, as the cache calls it to compare answers."""

    def __init__(self, vectors: Vectors) -> None:
        self.embed, self._vectors = self, vectors

    async def remote(self, texts: list[str]) -> list[Embedding]:
        return [Embedding(self._vectors.of_answer(text).tobytes(), 0, False, 0) for text in texts]


class Cache:
    """The cache's deployment without its store's failures, purges and evictions."""

    def __init__(
        self, decision: Remembered, vectors: Vectors, max_error_rate: float | None, room: int, seed: int
    ) -> None:
        handle: Any = _Handle(vectors)
        self.learning = WatchedLearning(
            max_error_rate, decision.measure, handle, decision.record, Random(seed).random
        )
        judges: Any = decision
        self._finder = EntryFinder(CacheSettings(), judges, self.learning)
        self._store: Any = ListStore(vectors.dimension, room)
        self._made = 0.0

    async def find(self, query: CacheQuery) -> Hit | Miss:
        same = await self._store.get(query.entry_id)  # as the gateway's memory answers, before a look-up
        return Hit(same) if same is not None else await self._finder.find(self._store, query, 0.0)

    async def put(self, query: CacheQuery, text: str) -> None:
        self._made += 1.0
        answer = Answer("oracle", text, Usage(1, 1, 2))
        entry = CacheEntry(query.entry_id, "t", "oracle", PARTITION, query.text, answer, self._made, FOREVER)
        await self._store.put(replace(entry, vector=query.vector))

    async def observe(self, probe: Probe, fresh: str) -> None:
        entry = await self._store.get(probe.entry_id)
        right = await self.learning.compare(fresh, entry.answer.text)
        if right is not None:
            evidence = self.learning.learn(entry.evidence, probe, right)
            await self._store.annotate(probe.entry_id, Annotation(evidence))


def replay_in_process(
    name: str,
    decision: Remembered,
    vectors: Vectors,
    questions: Sequence[Question],
    meanings: Meanings,
    *,
    max_error_rate: float | None,
    variation: float,
    seed: int,
) -> Replay:
    """Send the questions one after the other to a cache with an empty store."""
    cache = Cache(decision, vectors, max_error_rate, len(questions), seed)
    found, random = Replay(name, record=cache.learning.watch(meanings)), Random(seed)

    async def run() -> None:
        for question in questions:
            vector = vectors.to_look_up(question.text)
            query = CacheQuery(
                uuid5(NAMES, question.text),
                PARTITION,
                question.text,
                None if vector is None else vector.tobytes(),
            )
            answered = await cache.find(query)
            found.outcomes.append(_outcome(answered, question, meanings, found))
            if isinstance(answered, Miss):
                said = answer_to(question.meaning, random, variation)
                if answered.probe is not None:
                    await cache.observe(answered.probe, said)
                await cache.put(query, said)

    asyncio.run(run())
    found.bound = cache.learning.summary()
    return found


def _outcome(answered: Hit | Miss, question: Question, meanings: Meanings, found: Replay) -> str:
    if isinstance(answered, Miss):
        return MISS
    if answered.similarity is None:
        return EXACT
    outcome = meanings.outcome(question.meaning, answered.entry.text)
    if outcome == UNLABELLED:
        found.doubtful.append((question.text, answered.entry.text))
    return outcome
