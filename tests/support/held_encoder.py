"""An embedder whose passes end when they are let go: its own batches, without a model."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from deployments.embedder import Encoded
from deployments.embedder.deployment import Embedder
from serve_app.settings import EmbedderSettings

DIMENSION = 32
PASS_TIMEOUT_S = 60.0


class HeldEncoder:
    """A text's vector depends on its bytes. ``passes`` are those that began, in order."""

    name = "held"
    dimension = DIMENSION
    max_tokens = 64

    def __init__(self) -> None:
        self.passes: list[list[str]] = []
        self._is_held = False
        self._free = threading.Semaphore(0)

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.passes.append(list(texts))
        if self._is_held:
            assert self._free.acquire(timeout=PASS_TIMEOUT_S), "nobody let the pass go"
        vectors = np.stack([_vector(text) for text in texts])
        return Encoded(vectors, (1,) * len(texts), (0,) * len(texts))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Passes begin, but end only when they are let go, or with the block."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.let_go(1)  # there is one pass at a time

    def let_go(self, passes: int) -> None:
        for _ in range(passes):
            self._free.release()


def held_embedder(encoder: HeldEncoder, most: int) -> Embedder:
    """``most``: texts of a pass."""
    return Embedder(EmbedderSettings(id="words", source="words", max_batch_size=most), encoder)


def _vector(text: str) -> np.ndarray:
    vector = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float32)
