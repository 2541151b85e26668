"""Embedder and cache in this process: a real store, and vectors made of words."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.semantic_cache import open_semantic_cache

from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.settings import CacheSettings

DIMENSION = 32
MAX_TOKENS = 64


class WordEmbedder:
    """The same words in another order have the same vector; other words have another one."""

    async def embed(self, texts: list[str]) -> list[Embedding]:
        return [self._one(text.lower().split()) for text in texts]

    async def describe(self) -> EmbedderInfo:
        return EmbedderInfo("words", DIMENSION, MAX_TOKENS)

    def _one(self, words: list[str]) -> Embedding:
        vector = np.full(DIMENSION, 1e-6, dtype=np.float32)
        for word in words[:MAX_TOKENS]:
            vector += np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSION)
        return Embedding((vector / np.linalg.norm(vector)).tobytes(), len(words), len(words) > MAX_TOKENS)


class LocalHandle:
    """What stands for a deployment's handle: calls a plain object's methods, which may be held up or fail."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._gates: dict[str, asyncio.Event] = {}
        self._stubborn: set[str] = set()
        self._failures: dict[str, Exception] = {}
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()

    def __getattr__(self, method: str) -> LocalMethod:
        return LocalMethod(lambda *args: self._call(method, args))

    @contextmanager
    def held(self, method: str, *, stubborn: bool = False) -> Iterator[None]:
        """Calls begin, but are not answered before the block ends, or ``let`` is called. ``stubborn`` ones
        do not end before either when they are cancelled."""
        self._gates[method] = asyncio.Event()
        self._stubborn |= {method} if stubborn else set()
        try:
            yield
        finally:
            self.let(method)
            self._stubborn.discard(method)

    def let(self, method: str) -> None:
        """Answer what is held, and whatever comes."""
        if method in self._gates:
            self._gates.pop(method).set()

    @contextmanager
    def failing(self, method: str) -> Iterator[None]:
        self._failures[method] = RuntimeError("broken on purpose")
        try:
            yield
        finally:
            del self._failures[method]

    async def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        self.begun[method] += 1
        if method in self._gates:
            await self._wait(method, self._gates[method])
        if method in self._failures:
            raise self._failures[method]
        answer = await getattr(self._target, method)(*args)
        self.ended[method] += 1
        return answer

    async def _wait(self, method: str, gate: asyncio.Event) -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.cancelled[method] += 1
            if method in self._stubborn:
                await gate.wait()
            raise


@dataclass(frozen=True)
class LocalMethod:
    remote: Callable[..., Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class LocalCache:
    """``args`` and ``handles`` are for ``gateway``."""

    embedder: LocalHandle
    store: LocalHandle
    settings: dict[str, Any]

    @property
    def args(self) -> dict[str, Any]:
        return {"embedder": {"id": "words", "source": "words"}, "cache": self.settings}

    @property
    def handles(self) -> dict[str, Any]:
        return {"embedder": self.embedder, "cache": self.store}


@asynccontextmanager
async def local_cache(folder: Path, **settings: Any) -> AsyncIterator[LocalCache]:
    """``settings`` are the cache's. Its look-ups may take seconds unless told otherwise, so that a busy
    machine makes no misses."""
    near = {"decision": "similarity"}  # its texts are alike by their words alone: a guard would object
    values = {"lookup_budget_ms": 5_000.0, "path": str(folder / "store"), **near, **settings}
    embedder = LocalHandle(WordEmbedder())
    cache = await open_semantic_cache(CacheSettings(**values), embedder)
    try:
        yield LocalCache(embedder, LocalHandle(cache), values)
    finally:
        await cache.close()
