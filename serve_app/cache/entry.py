"""The values that gateways and the cache exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from serve_app.cache.bound.evidence import EntryEvidence
from serve_app.gateways.announced import Announced
from serve_app.openai.answers import Answer

ENTRY_OVERHEAD = 2048
"""Approximate bytes of an entry besides its texts: a vector of 384 dimensions, the ids, the indexes."""

NOT_SIMILAR = "similarity"
"""The reason for a miss whose nearest entry is below the similarity threshold."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One stored answer. Times are Unix seconds; ``vector`` is float32 bytes. An entry without a vector is
    found only by the same text. ``evidence`` is how often it was right (see ``serve_app/cache/bound``); it is
    not sent to gateways. ``uses`` counts how often the entry answered; entries with the lowest ``value`` are
    evicted first (see ``serve_app/cache/eviction.py``)."""

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
        """Its approximate size in bytes."""
        return ENTRY_OVERHEAD + len(self.text.encode()) + len(self.answer.text.encode())

    def is_fresh(self, now: float, max_age_s: float | None = None) -> bool:
        """Whether the entry has not expired and is not older than the request accepts."""
        return now < self.expires_at and (max_age_s is None or now - self.created_at <= max_age_s)

    def age_s(self, now: float) -> float:
        return max(0.0, now - self.created_at)


def without_evidence(entry: CacheEntry) -> CacheEntry:
    """The entry as gateways get it."""
    return replace(entry, evidence=EntryEvidence())


@dataclass(frozen=True, slots=True)
class Annotation:
    """The changeable part of an entry; ``None`` leaves a field as it is."""

    evidence: EntryEvidence | None = None
    uses: int | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that answers a request. ``similarity`` is the cosine of a semantic hit, ``score`` the
    verifier's probability that the answer serves (if there is a verifier), ``epoch`` the cache's epoch when
    the entry was found. ``stale``: the entry has expired, and a fresh answer should be fetched.
    ``decided_ns``: how long the decision took, in nanoseconds; 0 if there was no near entry."""

    entry: CacheEntry
    similarity: float | None = None
    epoch: int = 0
    score: float | None = None
    stale: bool = False
    decided_ns: int = field(default=0, compare=False)

    @property
    def kind(self) -> str:
        """The value of ``x-cache``."""
        return "exact" if self.similarity is None else "semantic"


@dataclass(frozen=True, slots=True)
class Probe:
    """A near entry that did not answer and will be compared with the engine's fresh answer, so that the cache
    learns how often it is right. ``score`` is the input of the learned bound; ``audited`` is the error that
    the bound predicted, if only the audit kept the entry from answering."""

    entry_id: UUID
    made_at: float
    score: float
    audited: float | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """A near entry about which the verifier is not sure, so the served model may be asked. ``epoch``: as in
    ``Hit``."""

    entry: CacheEntry
    similarity: float
    score: float
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Miss:
    """No entry answers. ``reason``: why the nearest entry was refused, ``None`` if there was none near.
    ``decided_ns``: as in ``Hit``. ``answered_at``: the other gateway that is answering an identical
    request."""

    reason: str | None = None
    probe: Probe | None = None
    doubt: Doubt | None = None
    decided_ns: int = field(default=0, compare=False)
    answered_at: str | None = None

    @property
    def is_near(self) -> bool:
        """Whether an entry was similar enough, and refused for another reason."""
        return self.reason not in {None, NOT_SIMILAR}


LookUp = Hit | Miss


@dataclass(frozen=True, slots=True)
class CacheQuery:
    """The input of a look-up. ``vector`` is float32 bytes, or ``None`` to find only the same text;
    ``threshold`` and ``max_age_s`` (seconds) are the request's own, if it has any. ``announced``: set if
    identical requests at other gateways may join this one while it is answered."""

    entry_id: UUID
    partition: str
    text: str
    vector: bytes | None = None
    threshold: float | None = None
    max_age_s: float | None = None
    announced: Announced | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries that an administrator selects; ``None`` matches any value. At least one field is set."""

    entry_id: UUID | None = None
    tenant: str | None = None
    model: str | None = None
    tag: str | None = None

    def fits(self, entry: CacheEntry) -> bool:
        """Whether every field that is set matches."""
        return (
            self.entry_id in (None, entry.entry_id)
            and self.tenant in (None, entry.tenant)
            and self.model in (None, entry.model)
            and (self.tag is None or self.tag in entry.tags)
        )


@dataclass(frozen=True, slots=True)
class CacheStats:
    """``epoch`` rises with every purge: a gateway that sees a new one drops what it holds in memory.
    ``refused`` counts refused near entries by reason (see ``serve_app/cache/decision``); ``bound`` is what
    was learned about errors, empty without ``max_error_rate``."""

    entries: int
    epoch: int
    path: str
    error: str | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    bound: Mapping[str, float] = field(default_factory=dict)
