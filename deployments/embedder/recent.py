"""A cache of recent embeddings: a look-up that missed and the entry stored after it have the same text."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from serve_app.embedding import Embedding


class RecentEmbeddings:
    """An LRU cache of ``capacity`` embeddings; 0 keeps none. Texts are kept as 16-byte digests, so an entry
    costs a vector and about 300 bytes, however long its text was. ``tag`` identifies the text's owner: owners
    do not share entries, but they share the capacity."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[bytes, Embedding] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: str, tag: str = "") -> Embedding | None:
        """The text's embedding, which becomes the most recently used; counts a hit or a miss."""
        key = _key(text, tag)
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return found

    def put(self, text: str, embedding: Embedding, tag: str = "") -> None:
        """Keep an embedding; if the cache is full, the least recently used one is evicted."""
        key = _key(text, tag)
        self._entries[key] = embedding
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


def _key(text: str, tag: str) -> bytes:
    named = hashlib.blake2b(tag.encode(), digest_size=16)
    named.update(b"\0")  # a separator: no tag contains a NUL
    named.update(text.encode("utf-8", "surrogatepass"))
    return named.digest()
