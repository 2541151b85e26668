"""What the cache learns from its own hits: which ones were right, and which pairs must not be used again.

It owns the policy of ``serve_app/cache/bound`` and saves it in the store, beside the entries, so that it
survives a restart wherever the next replica runs.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
from ray.serve.handle import DeploymentHandle

from deployments.cache.note import Notes
from serve_app.cache.bound import EntryEvidence, RecentReuses, ReusePolicy, reuse_policy, same_answer
from serve_app.cache.entry import CacheEntry, Probe
from serve_app.embedding import Embedding

NO_AUDIT = 1.0
"""The draw with which nothing is audited, because other draws are below 1."""

UNKNOWN_SCORE = 1.0
"""The score of a reported reuse that is no longer remembered: the report then counts at every score."""

ASKS_FIRST = {"audit": "audit", "bound": "error-bound", "blocked": "blocked"}
"""Why a near entry that the decision accepts does not answer: maps the policy's reason to the counted
name."""

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether an entry may answer. ``refusal`` is the reason if not, else ``None``. ``probe`` is a comparison
    with the engine's fresh answer to learn from, if one is wanted."""

    refusal: str | None = None
    probe: Probe | None = None


class CacheLearning:
    """The learned state; only the cache's event loop uses it. It has this many methods because it wraps each
    method of the policy, to know when there is something to save.

    ``scale`` names the kind of score; what was learned on another scale is discarded. ``record`` is the
    verifier's record on other data, used as a prior. ``draw`` returns random numbers from [0, 1)."""

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
        self._reuses = RecentReuses()
        self._is_saved = True

    @property
    def learns(self) -> bool:
        return self._policy.learns

    def summary(self) -> dict[str, float]:
        return self._policy.summary()

    def ask(self, entry: CacheEntry, score: float, text: str) -> Permission:
        """Decide whether the entry may answer a text now."""
        draw = self._draw() if self._reuses.audit_is_due(entry.entry_id, text) else NO_AUDIT
        decision = self._policy.decide(entry.evidence, score, draw, (entry.entry_id, text))
        if decision.reuse:
            self._policy.reused(decision)
            self._reuses.add(entry.entry_id, text, score)
            return Permission()
        audited = decision.bound if decision.reason == "audit" else None
        probe = Probe(entry.entry_id, entry.created_at, score, audited) if decision.explore else None
        return Permission(ASKS_FIRST[decision.reason], probe)

    async def compare(self, fresh: str, cached: str) -> bool | None:
        """Whether two answers say the same; ``None`` if this is not clear. They are embedded only if
        comparing their words does not decide; of long answers only the beginning is embedded."""
        same = same_answer(fresh, cached, None)
        if same is not None:
            return same
        found: list[Embedding] = await self._embedder.embed.remote([fresh, cached])
        return same_answer(fresh, cached, _cosine(*found))

    def learn(self, evidence: EntryEvidence, probe: Probe, right: bool) -> EntryEvidence:
        """Learn from comparing a fresh answer with the entry's; returns the entry's new evidence."""
        self._is_saved = False
        return self._policy.learn(evidence, probe.score, right, probe.audited)

    def learn_repeat(self, right: bool) -> None:
        """Learn from two answers to the same text: ``right`` if they say the same."""
        self._is_saved = False
        self._policy.learn_repeat(right)

    def report(self, entry_id: UUID, evidence: EntryEvidence, right: bool, text: str | None) -> EntryEvidence:
        """Learn from a person's feedback on an entry for a text (by default the last text it answered);
        returns the entry's new evidence."""
        reuse = self._reuses.get(entry_id, text)
        if text is None:
            if reuse is None:
                return evidence
            text = reuse.text
        score = UNKNOWN_SCORE if reuse is None else reuse.score
        self._is_saved = False
        return self._policy.report(evidence, score, right, (entry_id, text))

    def reported_wrong(self) -> None:
        """Learn that an entry, which is being dropped, was reported as wrong."""
        self._is_saved = False
        self._policy.reported_wrong()

    async def load(self, notes: Notes) -> None:
        """Restore the saved state. State that cannot be read is discarded with a warning in the log.

        Raises:
            StoreError: the store failed.
        """
        note = await notes.read_note()
        try:
            saved = None if note is None else self._on_this_scale(msgspec.json.decode(note))
            self._policy = reuse_policy(self._rate, saved, self._record)
        except (msgspec.DecodeError, ValueError, TypeError, AttributeError) as error:
            logger.warning("what the cache had learned cannot be read (%s): it starts with nothing", error)
            self._policy = reuse_policy(self._rate, record=self._record)

    async def save(self, notes: Notes) -> None:
        """Save the state if it has changed.

        Raises:
            StoreError: the store failed; the next call tries again.
        """
        if self._is_saved:
            return
        self._is_saved = True  # a change during this write is saved by the next call
        note = msgspec.json.encode({**self._policy.to_dict(), "scale": self._scale}).decode()
        try:
            await notes.write_note(note)
        except BaseException:
            self._is_saved = False
            raise

    def _on_this_scale(self, saved: dict[str, Any]) -> dict[str, Any]:
        scale = saved.pop("scale", self._scale)
        return saved if scale == self._scale else {"blocked": saved.get("blocked", [])}


def _cosine(left: Embedding, right: Embedding) -> float:
    """The cosine of two unit vectors."""
    vectors = (np.frombuffer(one.vector, dtype=np.float32) for one in (left, right))
    return float(np.dot(*vectors))
