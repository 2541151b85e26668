"""What the cache learns of its own hits: which were right, which pairs must not be used again.

It owns the policy of ``serve_app/cache/bound`` and keeps it in the store, beside the entries, so that it
survives a restart wherever the next replica runs.
"""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
from ray.serve.handle import DeploymentHandle

from deployments.cache.note import Notes
from serve_app.cache.bound import EntryEvidence, ReusePolicy, reuse_policy, same_answer
from serve_app.cache.entry import CacheEntry, Probe
from serve_app.embedding import Embedding

REMEMBERED_REUSES = 4096
"""Entries whose last reuse a report may still mean."""

UNKNOWN_SCORE = 1.0
"""Of a reuse that is reported but not remembered: what is said holds at every score."""

ASKS_FIRST = {"audit": "audit", "bound": "error-bound", "blocked": "blocked"}
"""Why a near entry that the decision lets through does not answer, as it is counted and shown."""

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Reuse:
    """One answer that an entry gave: to which text, at which score."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Permission:
    """``refusal``: why an entry must not answer now, ``None`` if it may. ``probe``: what to learn from
    instead."""

    refusal: str | None = None
    probe: Probe | None = None


class CacheLearning:
    """One writer, in the cache's event loop. ``scale`` names what scores are measured by: what was learned on
    another scale is forgotten. ``record`` is how the verifier did elsewhere, for a beginning. ``draw`` gives
    random numbers from [0, 1)."""

    def __init__(
        self,
        max_error_rate: float | None,
        scale: str,
        embedder: DeploymentHandle[Any],
        record: Sequence[tuple[float, float, float]] = (),
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._rate = max_error_rate
        self._scale = scale
        self._embedder = embedder
        self._draw = draw
        self._record = record
        self._policy: ReusePolicy = reuse_policy(max_error_rate, record=record)
        self._reuses: OrderedDict[UUID, Reuse] = OrderedDict()
        self._is_saved = True

    @property
    def learns(self) -> bool:
        return self._policy.learns

    def summary(self) -> dict[str, float]:
        return self._policy.summary()

    def ask(self, entry: CacheEntry, score: float, text: str) -> Permission:
        """Whether the entry may answer a text, now."""
        decision = self._policy.decide(entry.evidence, score, self._draw(), (entry.entry_id, text))
        if decision.reuse:
            self._policy.reused(decision)
            self._remember(entry.entry_id, Reuse(text, score))
            return Permission()
        audited = decision.bound if decision.reason == "audit" else None
        probe = Probe(entry.entry_id, entry.created_at, score, audited) if decision.explore else None
        return Permission(ASKS_FIRST[decision.reason], probe)

    async def compare(self, fresh: str, cached: str) -> bool | None:
        """Whether two answers say the same; ``None`` if that cannot be told. They are embedded only if their
        words do not tell; of long ones the beginnings are."""
        told = same_answer(fresh, cached, None)
        if told is not None:
            return told
        found: list[Embedding] = await self._embedder.embed.remote([fresh, cached])
        return same_answer(fresh, cached, _cosine(*found))

    def learn(self, evidence: EntryEvidence, probe: Probe, right: bool) -> EntryEvidence:
        """A fresh answer was compared with the entry's; returns what is known of the entry now."""
        self._is_saved = False
        return self._policy.learn(evidence, probe.score, right, probe.audited)

    def learn_repeat(self, right: bool) -> None:
        """The same text was answered anew, and the answers compared."""
        self._is_saved = False
        self._policy.learn_repeat(right)

    def report(self, entry_id: UUID, evidence: EntryEvidence, right: bool, text: str | None) -> EntryEvidence:
        """A person's word on an entry for a text (the last one that it answered, if none is named)."""
        reuse = self._reuses.get(entry_id)
        if text is None:
            if reuse is None:
                return evidence
            text = reuse.text
        score = reuse.score if reuse is not None and reuse.text == text else UNKNOWN_SCORE
        self._is_saved = False
        return self._policy.report(evidence, score, right, (entry_id, text))

    def reported_wrong(self) -> None:
        """A person's word on an entry that is being dropped."""
        self._is_saved = False
        self._policy.reported_wrong()

    async def load(self, notes: Notes) -> None:
        """Go on where the last one that saved ended. What cannot be read is forgotten, and the log says so.

        Raises:
            StoreError: the store failed.
        """
        note = await notes.read_note()
        try:
            saved = None if note is None else self._on_this_scale(msgspec.json.decode(note))
            self._policy = reuse_policy(self._rate, saved, self._record)
        except (msgspec.DecodeError, ValueError, TypeError, AttributeError) as error:
            logger.warning("what the cache had learned cannot be read (%s): it learns anew", error)
            self._policy = reuse_policy(self._rate, record=self._record)

    async def save(self, notes: Notes) -> None:
        """Raises:
        StoreError: the store failed; the next call tries again.
        """
        if self._is_saved:
            return
        self._is_saved = True  # what is learned while this is written is for the next call
        note = msgspec.json.encode({**self._policy.to_dict(), "scale": self._scale}).decode()
        try:
            await notes.write_note(note)
        except BaseException:
            self._is_saved = False
            raise

    def _on_this_scale(self, saved: dict[str, Any]) -> dict[str, Any]:
        scale = saved.pop("scale", self._scale)
        return saved if scale == self._scale else {"blocked": saved.get("blocked", [])}

    def _remember(self, entry_id: UUID, reuse: Reuse) -> None:
        self._reuses[entry_id] = reuse
        self._reuses.move_to_end(entry_id)
        if len(self._reuses) > REMEMBERED_REUSES:
            self._reuses.popitem(last=False)


def _cosine(left: Embedding, right: Embedding) -> float:
    """Of unit vectors."""
    vectors = (np.frombuffer(one.vector, dtype=np.float32) for one in (left, right))
    return float(np.dot(*vectors))
