"""An entry as every engine keeps it: a payload beside the vector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from deployments.store.base import Match
from serve_app.cache.bound import EntryEvidence
from serve_app.cache.entry import CacheEntry
from serve_app.openai.answers import decode_answer, encode_answer

SCHEMA_VERSION = 1
"""Part of the folder's or collection's name: entries of another layout are left alone, never misread."""

TENANT_KEY = "partition"
"""Every search filters by it: Qdrant keeps such points together."""

KEYWORDS = ("tenant", "model", "tags")
NUMBERS = ("created_at", "expires_at")
FIELDS = (TENANT_KEY, *KEYWORDS, *NUMBERS)
"""What has a payload index."""

NOTE_ID = UUID("6e6f7465-0000-4000-8000-000000000001")
"""The point that holds the store's note. Entries' ids are hashes of keys and have no such shape."""

NOTE = "note"

MAX_COSINE = 1.001
"""Rounding goes a little beyond 1; what is beyond this, or not a number, was scored with a damaged vector."""


class Payload(msgspec.Struct, frozen=True):
    """``answer`` is JSON; times are Unix seconds."""

    tenant: str
    model: str
    partition: str
    text: str
    answer: str
    created_at: float
    expires_at: float
    tags: tuple[str, ...]
    evidence: dict[str, Any] | None = None


def generation(embedder: str, dimension: int) -> str:
    """The name of what holds one embedder's entries in today's layout, such as ``v1-0123456789ab``."""
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
        **evidence_of(entry.evidence),
    }


def evidence_of(evidence: EntryEvidence) -> dict[str, Any]:
    """The part of a payload that tells what is known of an entry; empty if that is nothing."""
    return {"evidence": evidence.to_dict()} if evidence.observations else {}


def entry_of(entry_id: Any, payload: Any) -> CacheEntry | None:
    """The entry without its vector; ``None`` for a point that is not a whole entry (somebody else's)."""
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
        )
    except (msgspec.MsgspecError, ValueError):
        return None


def entries_of(points: Iterable[Any]) -> list[CacheEntry]:
    """The whole entries among an engine's records (``id`` and ``payload``)."""
    entries = (entry_of(point.id, point.payload) for point in points)
    return [entry for entry in entries if entry is not None]


def matches_of(points: Iterable[Any]) -> list[Match]:
    """The whole entries among an engine's scored points (``id``, ``payload`` and ``score``, a cosine)."""
    found = ((entry_of(point.id, point.payload), float(point.score)) for point in points)
    return [Match(entry, score) for entry, score in found if entry is not None and abs(score) <= MAX_COSINE]


def note_of(payload: Any) -> str | None:
    """What the note's point holds; ``None`` for a point that holds something else."""
    note = payload.get(NOTE) if isinstance(payload, dict) else None
    return note if isinstance(note, str) else None


def floats(vector: bytes) -> list[float]:
    """float32 bytes as Python floats."""
    values: list[float] = np.frombuffer(vector, dtype=np.float32).tolist()
    return values
