"""Pairs of an entry and a text that an operator reported as wrong; they are never reused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from serve_app.cache.bound.compare import normalised
from serve_app.cache.bound.evidence import EntryEvidence

MOST_PAIRS = 4096
"""At most about 300 KiB of JSON; the oldest pairs are evicted first."""


def text_hash(text: str) -> str:
    """32 hex digits of a hash of the text without case, space and punctuation, or of the text itself if
    nothing else is left of it."""
    return hashlib.sha256((normalised(text) or text).encode()).hexdigest()[:32]


@dataclass(slots=True)
class BlockedPairs:
    """A bounded set, in order of age. It holds hashes only, no text."""

    capacity: int = MOST_PAIRS
    _pairs: dict[tuple[UUID, str], None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[UUID, str]]:
        return iter(self._pairs)

    def block(self, entry_id: UUID, text: str) -> None:
        self._add((entry_id, text_hash(text)))

    def unblock(self, entry_id: UUID, text: str) -> bool:
        """Unblock a pair; returns whether it was blocked."""
        pair = entry_id, text_hash(text)
        found = pair in self._pairs
        self._pairs.pop(pair, None)
        return found

    def is_blocked(self, entry_id: UUID, text: str) -> bool:
        return bool(self._pairs) and (entry_id, text_hash(text)) in self._pairs

    def merged(self, other: BlockedPairs) -> BlockedPairs:
        """The pairs of both; the same pair counts once."""
        both = BlockedPairs(max(self.capacity, other.capacity))
        for pair in (*self, *other):
            both._add(pair)
        return both

    def to_list(self) -> list[list[str]]:
        """JSON-compatible: ``[entry id, hash]``, oldest first."""
        return [[str(entry_id), hashed] for entry_id, hashed in self]

    @classmethod
    def from_list(cls, pairs: Iterable[Iterable[str]], capacity: int = MOST_PAIRS) -> BlockedPairs:
        """
        Raises:
            ValueError: ``pairs`` was not made by ``to_list``.
        """
        blocked = cls(capacity)
        try:
            for entry_id, hashed in pairs:
                blocked._add((UUID(entry_id), str(hashed)))
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"not blocked pairs: {error!r}") from error
        return blocked

    def _add(self, pair: tuple[UUID, str]) -> None:
        self._pairs.pop(pair, None)
        self._pairs[pair] = None
        if len(self._pairs) > self.capacity:
            del self._pairs[next(iter(self._pairs))]


def is_refused(blocked: BlockedPairs, evidence: EntryEvidence, pair: tuple[UUID, str] | None) -> bool:
    """Whether the pair of an entry and a text was reported as wrong: by an operator, or by the users of the
    entry's own tenant."""
    if pair is None:
        return False
    if evidence.refused and text_hash(pair[1]) in evidence.refused:
        return True
    return blocked.is_blocked(*pair)
