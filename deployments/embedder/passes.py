"""An encoder on a thread of its own, and the batches that run there."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from deployments.embedder.base import TextEncoder
from deployments.embedder.batches import Batches
from serve_app.embedding import Embedding
from serve_app.settings import EmbedderSettings

LIST_NICENESS = 10
"""Beside threads of the usual priority one of this niceness gets a tenth of a core (weight 110 to 1,024, see
sched(7)), and yields at once to one that wakes up; on an idle core it is as fast as any."""


class Passes:
    """Embeds texts. The model runs on its own thread, so that the replica's event loop keeps answering health
    checks. ``background``: the thread, and those that the encoder starts, have a low priority."""

    def __init__(
        self, settings: EmbedderSettings, open_encoder: Callable[[], TextEncoder], *, background: bool = False
    ) -> None:
        """``open_encoder`` is called once, on the thread, before the first pass."""
        self._open = open_encoder
        self._encoder: TextEncoder | None = None
        self._thread = ThreadPoolExecutor(
            max_workers=1,
            thread_name_prefix="embedder",
            initializer=_lower_priority if background else None,
        )
        self._batches = Batches(
            self._encode,
            settings.max_batch_size,
            settings.batch_wait_ms / 1000,
            settings.batch_characters,
        )

    def warm_up(self, text: str) -> None:
        """Run a first pass, which allocates memory; blocks."""
        self._thread.submit(self._embeddings, [text]).result()

    async def run(self, texts: list[str], tag: str = "", *, is_look_up: bool = False) -> list[Embedding]:
        """One embedding per text, in order. ``tag``: the owner of the texts (:class:`Batches`)."""
        return await self._batches.run(texts, tag, is_look_up=is_look_up)

    @property
    def waiting(self) -> int:
        """Texts that are in no pass yet, and whose callers still wait."""
        return self._batches.waiting

    async def _encode(self, texts: list[str]) -> list[Embedding]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embeddings, texts)

    def _embeddings(self, texts: list[str]) -> list[Embedding]:
        if self._encoder is None:
            self._encoder = self._open()
        encoder = self._encoder
        encoded = encoder.encode(texts)
        return [
            Embedding(vector.tobytes(), tokens, tokens > encoder.max_tokens, unknown)
            for vector, tokens, unknown in zip(encoded.vectors, encoded.tokens, encoded.unknown, strict=True)
        ]


def _lower_priority() -> None:
    """Of the calling thread. Elsewhere than on Linux all threads of a process have one priority."""
    if sys.platform == "linux":
        os.nice(LIST_NICENESS)
