"""From an answer to the entry that keeps it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from serve_app.cache.entry import CacheEntry
from serve_app.cache.expiry import Expiry
from serve_app.cache.keys import CacheKey
from serve_app.openai.answers import Answer, encode_answer
from serve_app.request.cache_controls import CacheControls


class NewEntries:
    def __init__(self, expiry: Expiry, max_bytes: int) -> None:
        self._expiry = expiry
        self._max_bytes = max_bytes

    def make(
        self,
        key: CacheKey,
        controls: CacheControls,
        headers: Mapping[str, str],
        answer: Answer,
        operators_ttl_s: float | None = None,
    ) -> CacheEntry | None:
        """The entry for an answer; ``None`` for one that is not to be stored: by a rule, or for its size.
        ``operators_ttl_s`` is set by an administrator and may be longer than the settings allow."""
        ttl_s = self._expiry.ttl_s(key, controls.tags, headers, controls.ttl_s)
        if operators_ttl_s is not None and ttl_s > 0:
            ttl_s = operators_ttl_s
        if ttl_s <= 0 or len(encode_answer(answer)) + len(key.text) > self._max_bytes:
            return None
        now = time.time()
        return CacheEntry(
            entry_id=key.entry_id,
            tenant=key.tenant,
            model=key.model,
            partition=key.partition,
            text=key.text,
            answer=answer,
            created_at=now,
            expires_at=self._expiry.ends_at(now, ttl_s),
            tags=controls.tags,
        )
