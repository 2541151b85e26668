"""What was said of pairs of texts: remembered, so that nothing is asked twice."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from serve_app.cache.bound.blocked import text_hash

MOST_VERDICTS = 20_000
"""Some 4 MB; the ones not used for longest go first."""


class Verdicts:
    """Whether an entry's answer serves a text. Bounded; holds hashes, no text."""

    def __init__(self, capacity: int = MOST_VERDICTS) -> None:
        self._capacity = capacity
        self._verdicts: OrderedDict[tuple[UUID, str], bool] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, entry_id: UUID, text: str) -> bool | None:
        """``None``: nobody has said anything."""
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
