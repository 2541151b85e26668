"""Embedder and cache in this process: a real store, and vectors made of words."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.handles import LocalHandle
from support.semantic_cache import open_semantic_cache

from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.settings import CacheSettings

DIMENSION = 32
MAX_TOKENS = 64


class WordEmbedder:
    """The same words in another order have the same vector; other words have another one."""

    async def embed(self, texts: list[str], tag: str = "") -> list[Embedding]:
        return [self._one(text.lower().split()) for text in texts]

    async def describe(self) -> EmbedderInfo:
        return EmbedderInfo("words", DIMENSION, MAX_TOKENS)

    def _one(self, words: list[str]) -> Embedding:
        vector = np.full(DIMENSION, 1e-6, dtype=np.float32)
        for word in words[:MAX_TOKENS]:
            vector += np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSION)
        return Embedding((vector / np.linalg.norm(vector)).tobytes(), len(words), len(words) > MAX_TOKENS)


@dataclass(frozen=True)
class LocalCache:
    """``args`` and ``handles`` are for ``gateway``."""

    embedder: LocalHandle
    stores: list[LocalHandle]
    settings: dict[str, Any]

    @property
    def store(self) -> LocalHandle:
        """The first shard, by default the only one."""
        return self.stores[0]

    @property
    def args(self) -> dict[str, Any]:
        return {"embedder": {"id": "words", "source": "words"}, "cache": self.settings}

    @property
    def handles(self) -> dict[str, Any]:
        return {"embedder": self.embedder, "cache": self.stores}


@asynccontextmanager
async def local_cache(folder: Path, embeds: Any = None, **settings: Any) -> AsyncIterator[LocalCache]:
    """``embeds`` is an embedder (default: one of words); ``settings`` are the cache's. Its
    look-ups may take seconds unless told otherwise, so that a busy machine makes no misses."""
    near = {"decision": "similarity"}  # its texts are alike by their words alone: a guard would object
    values = {"lookup_budget_ms": 5_000.0, "path": str(folder / "store"), **near, **settings}
    embedder = LocalHandle(WordEmbedder() if embeds is None else embeds)
    rules = CacheSettings(**values)
    caches = [await open_semantic_cache(rules, embedder, shard=shard) for shard in range(rules.shards)]
    try:
        yield LocalCache(embedder, [LocalHandle(cache) for cache in caches], values)
    finally:
        for cache in caches:
            await cache.close()
