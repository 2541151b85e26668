"""Tokens that were checked a moment ago: the next request with one costs a hash and a look-up."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from serve_app.request.auth import Identity

MOST_TOKENS = 10_000
"""About 1 KB each."""


class VerifiedTokens:
    """Identities by the hash of their token, until they expire; the least recently used goes first. The
    tokens themselves are not kept. It is emptied when the provider's keys change."""

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._most = most
        self._known: OrderedDict[bytes, Identity] = OrderedDict()

    def find(self, token: str, now: float) -> Identity | None:
        """``now``: Unix seconds."""
        digest = _digest(token)
        found = self._known.get(digest)
        if found is None:
            return None
        if found.expires_at is None or found.expires_at <= now:
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return found

    def add(self, token: str, identity: Identity) -> None:
        self._known[_digest(token)] = identity
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def clear(self) -> None:
        self._known.clear()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
