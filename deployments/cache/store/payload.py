"""An entry in the form in which both Qdrant stores keep it: a payload beside the vector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from deployments.cache.store.base import Evicted, Match
from serve_app.cache.bound import EntryEvidence
from serve_app.cache.entry import Annotation, CacheEntry
from serve_app.cache.eviction import Volume
from serve_app.openai.answers import decode_answer, encode_answer

SCHEMA_VERSION = 2
"""Part of the folder's or collection's name, so that entries of another layout are never misread."""

TENANT_KEY = "partition"
"""The payload field that every search filters by; Qdrant stores points of one value together."""

KEYWORDS = ("tenant", "model", "tags")
NUMBERS = ("created_at", "expires_at", "value")
FIELDS = (TENANT_KEY, *KEYWORDS, *NUMBERS)
"""The fields with a payload index."""

NOTE_ID = UUID("6e6f7465-0000-4000-8000-000000000001")
"""The point that holds the store's note. Entries' ids are hashes of keys and never look like this."""


def note_id(shard: int) -> UUID:
    """The id of the note of one of several shards in the same store; for the first shard it is
    ``NOTE_ID``."""
    return UUID(int=NOTE_ID.int + shard)


NOTE = "note"

VOLUME_FIELDS = ["tenant", "size", "value"]
"""The fields that counting and eviction read."""

BATCH = 1000
"""Points per page of a walk over many points."""

MAX_COSINE = 1.001
"""Rounding can exceed 1 slightly; a score above this, or NaN, comes from a damaged vector."""


class Payload(msgspec.Struct, frozen=True):
    """The stored fields of an entry. ``answer`` is JSON; times are Unix seconds."""

    tenant: str
    model: str
    partition: str
    text: str
    answer: str
    created_at: float
    expires_at: float
    tags: tuple[str, ...]
    uses: int
    value: float
    evidence: dict[str, Any] | None = None


def generation(embedder: str, dimension: int) -> str:
    """The name of the folder or collection of one embedder's entries in the current layout, such as
    ``v1-0123456789ab``."""
    return f"v{SCHEMA_VERSION}-{hashlib.sha256(f'{embedder}:{dimension}'.encode()).hexdigest()[:12]}"


def payload_of(entry: CacheEntry) -> dict[str, Any]:
    return {
        "tenant": entry.tenant,
        "model": entry.model,
        "partition": entry.partition,
        "text": entry.text,
        "answer": encode_answer(entry.answer).decode(),
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
        "tags": list(entry.tags),
        "size": entry.size,
        **annotation_of(Annotation(entry.evidence or None, entry.uses, entry.value)),
    }


def annotation_of(annotation: Annotation) -> dict[str, Any]:
    """The part of a payload that holds an entry's annotation."""
    evidence = None if annotation.evidence is None else annotation.evidence.to_dict()
    parts = {"evidence": evidence, "uses": annotation.uses, "value": annotation.value}
    return {name: value for name, value in parts.items() if value is not None}


def entry_of(entry_id: Any, payload: Any) -> CacheEntry | None:
    """The entry without its vector; ``None`` if the point is not a complete entry but another program's."""
    try:
        stored = msgspec.convert(payload, Payload)
        return CacheEntry(
            entry_id=UUID(str(entry_id)),
            tenant=stored.tenant,
            model=stored.model,
            partition=stored.partition,
            text=stored.text,
            answer=decode_answer(stored.answer),
            created_at=stored.created_at,
            expires_at=stored.expires_at,
            tags=stored.tags,
            evidence=EntryEvidence() if stored.evidence is None else EntryEvidence.from_dict(stored.evidence),
            uses=stored.uses,
            value=stored.value,
        )
    except (msgspec.MsgspecError, ValueError):
        return None


def only_entry(entry_id: UUID, records: Sequence[Any]) -> CacheEntry | None:
    """The entry of a retrieval by id, which returns one record or none."""
    return entry_of(entry_id, records[0].payload) if records else None


def entries_of(points: Iterable[Any]) -> list[CacheEntry]:
    """The complete entries among Qdrant's records (``id`` and ``payload``)."""
    entries = (entry_of(point.id, point.payload) for point in points)
    return [entry for entry in entries if entry is not None]


def page_of(records: Iterable[Any], following: Any) -> tuple[list[CacheEntry], UUID | None]:
    """One page of a walk, and the id at which the next page begins, ``None`` after the last."""
    return entries_of(records), None if following is None else UUID(str(following))


def matches_of(points: Iterable[Any]) -> list[Match]:
    """The complete entries among Qdrant's scored points (``id``, ``payload`` and ``score``, a cosine)."""
    return matches((entry_of(point.id, point.payload), float(point.score)) for point in points)


def matches(found: Iterable[tuple[CacheEntry | None, float]]) -> list[Match]:
    """The pairs whose entry is complete and whose cosine is possible (at most ``MAX_COSINE``)."""
    return [Match(entry, score) for entry, score in found if entry is not None and abs(score) <= MAX_COSINE]


def add_volumes(held: dict[str, Volume], payloads: Iterable[Any]) -> None:
    """Add entries and bytes per tenant to ``held``; ``payloads`` have at least ``VOLUME_FIELDS``."""
    for payload in payloads:
        tenant, size = (payload or {}).get("tenant"), (payload or {}).get("size")
        if isinstance(tenant, str) and isinstance(size, int):
            held[tenant] = held.get(tenant, Volume()) + Volume(1, size)


@dataclass(slots=True)
class EvictionTally:
    """Chooses the points to remove, which are given in order of value, until ``wanted`` is freed."""

    wanted: Volume
    gone: Evicted = field(default_factory=Evicted)

    @property
    def is_full(self) -> bool:
        return not self.wanted - self.gone.volume

    def take(self, points: Iterable[Any]) -> list[Any]:
        """The ids to remove from this page; they are counted as gone."""
        ids = []
        for point in points:
            if self.is_full:
                break
            payload = point.payload or {}
            volume = self.gone.volume + Volume(1, int(payload.get("size", 0)))
            self.gone = Evicted(volume, max(self.gone.value, float(payload.get("value", 0.0))))
            ids.append(point.id)
        return ids


def note_of(records: Sequence[Any]) -> str | None:
    """The note among the records retrieved by its id; ``None`` if there is none."""
    payload = records[0].payload if records else None
    note = payload.get(NOTE) if isinstance(payload, dict) else None
    return note if isinstance(note, str) else None


def vector_of(entry: CacheEntry) -> Any:
    """The entry's vector as both of Qdrant's clients take it."""
    return {} if entry.vector is None else floats(entry.vector)


def floats(vector: bytes) -> list[float]:
    """Convert float32 bytes to Python floats."""
    values: list[float] = np.frombuffer(vector, dtype=np.float32).tolist()
    return values
