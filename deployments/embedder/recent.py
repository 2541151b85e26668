"""The embeddings of recent texts: a look-up that missed and the entry stored after it have the same text."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from serve_app.embedding import Embedding


class RecentEmbeddings:
    """The last ``capacity`` embeddings that were used; 0 keeps none. Texts are kept as digests of 16 bytes,
    so an entry costs a vector and some 300 bytes, however long its text was. ``tag`` is whose the text is:
    each has a memory of its own, within one capacity."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[bytes, Embedding] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: str, tag: str = "") -> Embedding | None:
        """The text's embedding, which is now the most recent one; counts a hit or a miss."""
        key = _key(text, tag)
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return found

    def put(self, text: str, embedding: Embedding, tag: str = "") -> None:
        """Keep an embedding; the one that was unused for longest goes when there is no room."""
        key = _key(text, tag)
        self._entries[key] = embedding
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


def _key(text: str, tag: str) -> bytes:
    named = hashlib.blake2b(tag.encode(), digest_size=16)
    named.update(b"\0")  # no tag holds one
    named.update(text.encode("utf-8", "surrogatepass"))
    return named.digest()
