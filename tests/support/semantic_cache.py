"""The cache's deployment as a plain object."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from deployments.cache.deployment import REOPEN_PERIOD_S, SemanticCache
from serve_app.embedding import EmbedderInfo
from serve_app.settings import CacheSettings

INFO = EmbedderInfo("test", 4, 256)


class EmbedderHandle:
    """What the cache knows of the embedder: its description, of vectors with four numbers."""

    @property
    def describe(self) -> EmbedderHandle:
        return self

    async def remote(self) -> EmbedderInfo:
        return INFO


class PlainCache(SemanticCache):
    """Serve awaits the destructor; the interpreter would not."""

    def __del__(self) -> None:  # type: ignore[override]
        """The test that opens it calls ``close``."""


async def open_semantic_cache(
    settings: CacheSettings,
    embedder: Any,
    reopen_s: float = REOPEN_PERIOD_S,
    clock_ns: Callable[[], int] = time.time_ns,
    *,
    shard: int = 0,
) -> SemanticCache:
    """Made as Serve makes it. ``embedder`` stands for the embedder's handle."""
    cache = PlainCache.__new__(PlainCache)
    await cache.__init__(settings, embedder, reopen_s, clock_ns, shard=shard)  # type: ignore[misc]
    return cache
