"""Entries, vectors and a way to open stores, for their tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np

from deployments.cache.store import CacheStore
from serve_app.cache.entry import CacheEntry
from serve_app.openai.answers import Answer, Usage

DIMENSION = 8
EMBEDDER = "test:float32"

Opener = Callable[[int, str], Awaitable[CacheStore]]


@dataclass
class BackEnd:
    """Opens stores in one place, and closes what a test left open."""

    opener: Opener
    opened: list[CacheStore] = field(default_factory=list)

    async def open(self, embedder: str = EMBEDDER, dimension: int = DIMENSION) -> CacheStore:
        store = await self.opener(dimension, embedder)
        self.opened.append(store)
        return store


def unit(*values: float) -> bytes:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(values)] = values
    return (vector / np.linalg.norm(vector)).tobytes()


def entry(**changes: Any) -> CacheEntry:
    base = CacheEntry(
        entry_id=uuid4(),
        tenant="t",
        model="m",
        partition="p",
        text="q",
        answer=Answer("m", "ünïcode\n", Usage(1, 2, 3), stop_reason=None),
        created_at=100.0,
        expires_at=200.0,
        tags=("red", "blue"),
        vector=unit(1),
    )
    return replace(base, **changes)
