"""What crosses the boundary to the cache: small values, no request and no socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from serve_app.cache.bound.evidence import EntryEvidence
from serve_app.openai.answers import Answer

ENTRY_OVERHEAD = 2048
"""Bytes of an entry beside its texts: a vector of 384 dimensions, the ids, the indexes; roughly."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One stored answer. Times are Unix seconds; ``vector`` is float32 bytes;
    without one only the very same text finds the entry. ``evidence`` is how it did so far (see
    ``serve_app/cache/bound``); it stays with the cache and is not sent to gateways. ``uses`` are answers
    given, ``value`` says what is evicted first (see ``serve_app/cache/eviction.py``)."""

    entry_id: UUID
    tenant: str
    model: str
    partition: str
    text: str
    answer: Answer
    created_at: float
    expires_at: float
    tags: tuple[str, ...] = ()
    vector: bytes | None = None
    evidence: EntryEvidence = field(default_factory=EntryEvidence)
    uses: int = 0
    value: float = 0.0

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return ENTRY_OVERHEAD + len(self.text.encode()) + len(self.answer.text.encode())

    def is_fresh(self, now: float, max_age_s: float | None = None) -> bool:
        """Not expired, and not older than the request accepts."""
        return now < self.expires_at and (max_age_s is None or now - self.created_at <= max_age_s)

    def age_s(self, now: float) -> float:
        return max(0.0, now - self.created_at)


def without_evidence(entry: CacheEntry) -> CacheEntry:
    """The entry as gateways get it."""
    return replace(entry, evidence=EntryEvidence())


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is known of an entry beside what it is; ``None`` leaves a part as it was."""

    evidence: EntryEvidence | None = None
    uses: int | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that answers a request; ``similarity`` is the cosine on a semantic hit, ``score`` the
    verifier's probability that the answer serves (where one was asked), ``epoch`` the store's when it was
    found. ``stale``: it has outlived its time, and a fresh answer should be fetched."""

    entry: CacheEntry
    similarity: float | None = None
    epoch: int = 0
    score: float | None = None
    stale: bool = False

    @property
    def kind(self) -> str:
        """The value of ``x-cache``."""
        return "exact" if self.similarity is None else "semantic"


@dataclass(frozen=True, slots=True)
class Probe:
    """A near entry that was not given, and is to be compared with the engine's fresh answer: so the cache
    learns how often it is right. ``score`` is what the bound goes by; ``audited`` is the error that the bound
    foretold, if the entry would have answered but for the audit."""

    entry_id: UUID
    made_at: float
    score: float
    audited: float | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """A near entry of which the verifier is not sure: the served model may be asked. ``epoch`` as in a
    hit."""

    entry: CacheEntry
    similarity: float
    score: float
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Miss:
    """Nothing answers. ``reason``: why the nearest entry was not given, ``None`` if there was none near."""

    reason: str | None = None
    probe: Probe | None = None
    doubt: Doubt | None = None


LookUp = Hit | Miss


@dataclass(frozen=True, slots=True)
class CacheQuery:
    """What a look-up needs. ``vector`` is float32 bytes, or ``None`` for the very same text only;
    ``threshold`` and ``max_age_s`` (seconds) are the request's own, if it has any."""

    entry_id: UUID
    partition: str
    text: str
    vector: bytes | None = None
    threshold: float | None = None
    max_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries an administrator means; ``None`` is "any". At least one must be given."""

    entry_id: UUID | None = None
    tenant: str | None = None
    model: str | None = None
    tag: str | None = None

    def fits(self, entry: CacheEntry) -> bool:
        """Whether every given part fits."""
        return (
            self.entry_id in (None, entry.entry_id)
            and self.tenant in (None, entry.tenant)
            and self.model in (None, entry.model)
            and (self.tag is None or self.tag in entry.tags)
        )


@dataclass(frozen=True, slots=True)
class CacheStats:
    """``epoch`` rises with every purge: a gateway that sees a new one drops what it holds in memory.
    ``refused`` counts near entries that were not given, by the reason (see ``serve_app/cache/decision``);
    ``bound`` is what was learned of errors, empty without ``max_error_rate``."""

    entries: int
    epoch: int
    path: str
    error: str | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    bound: Mapping[str, float] = field(default_factory=dict)
