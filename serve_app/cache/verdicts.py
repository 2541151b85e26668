"""The served model's verdicts on pairs of texts, kept so that no pair is judged twice."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from serve_app.cache.bound.blocked import text_hash

MOST_VERDICTS = 20_000
"""About 4 MB; the least recently used ones are evicted first."""


class Verdicts:
    """Whether an entry's answer serves a text. A bounded LRU cache of hashes; it holds no text."""

    def __init__(self, capacity: int = MOST_VERDICTS) -> None:
        self._capacity = capacity
        self._verdicts: OrderedDict[tuple[UUID, str], bool] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, entry_id: UUID, text: str) -> bool | None:
        """The verdict; ``None`` if there is none."""
        pair = entry_id, text_hash(text)
        verdict = self._verdicts.get(pair)
        if verdict is not None:
            self._verdicts.move_to_end(pair)
        return verdict

    def put(self, entry_id: UUID, text: str, serves: bool) -> None:
        pair = entry_id, text_hash(text)
        self._verdicts[pair] = serves
        self._verdicts.move_to_end(pair)
        if len(self._verdicts) > self._capacity:
            self._verdicts.popitem(last=False)
