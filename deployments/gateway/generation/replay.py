"""A stored answer as a client is served it."""

from __future__ import annotations

import time
from typing import Self

from deployments.gateway.generation.asked import Asked
from deployments.gateway.request.answer import Head
from deployments.gateway.request.exchange import EVENT_STREAM, JSON
from deployments.gateway.request.finished import CACHE
from serve_app.cache.entry import Hit
from serve_app.openai import replay

NEAR_ENTRY = "x-cache-entry"
"""The header of a near hit that names its entry."""


class Replay:
    """An :class:`~deployments.gateway.request.answer.Answer` from the cache: all its bytes are known."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self._body = body
        self.head = Head(200, content_type, is_stream=False, served_by=CACHE, is_measured=False)

    async def begin(self) -> Self:
        return self

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body

    def close(self) -> None:
        """Holds nothing to release."""


def replay_of(asked: Asked, hit: Hit) -> Replay:
    """The entry's answer in the format of the request."""
    request, request_id, created = asked.request, asked.exchange.request_id, int(time.time())
    answer = hit.entry.answer
    if not request.generation.wants_stream:
        return Replay(replay.as_json(answer, request.endpoint, request_id, created), JSON)
    events = replay.as_stream(
        answer, request.endpoint, request_id, created, with_usage=request.generation.wants_usage
    )
    return Replay(b"".join(events), EVENT_STREAM)


def hit_headers(hit: Hit) -> dict[str, str]:
    """The response headers of a hit."""
    headers = {"x-cache": hit.kind, "x-cache-age": f"{hit.entry.age_s(time.time()):.0f}"}
    if hit.stale:
        headers["x-cache-stale"] = "true"
    if hit.similarity is not None:
        headers["x-cache-similarity"] = f"{hit.similarity:.4f}"
        headers[NEAR_ENTRY] = str(hit.entry.entry_id)
    if hit.score is not None:
        headers["x-cache-score"] = f"{hit.score:.3f}"
    return headers
