"""The Embedder deployment: a text encoder behind dynamic batching and a memory of recent texts."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from deployments.embedder import Batches, RecentEmbeddings, TextEncoder, open_configured
from deployments.platform.serve import node_address
from deployments.wire.direct_calls import DirectCalls
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.settings import EmbedderSettings
from serve_app.wire.calls import EMBEDDER
from serve_app.wire.private_address import PrivateAddress

WARM_UP_TEXT = "What does the first request find already warm?"


class Embedder:
    """Texts to unit vectors. Calls that arrive while a pass runs form the next one; a text that was embedded
    a moment ago (a look-up that missed, and now its answer is stored) is answered from memory."""

    def __init__(self, settings: EmbedderSettings) -> None:
        self._encoder = open_configured(settings)
        self._source, self._dtype = settings.source, settings.dtype
        self._most = settings.max_batch_size
        self.recent = RecentEmbeddings(settings.recent_texts)
        # The model runs on a thread of its own, so that the replica's loop keeps answering health checks.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._batches = Batches(self._encode, settings.max_batch_size, settings.batch_wait_ms / 1000)
        self._direct: DirectCalls | None = None
        # A thread's first pass allocates; let it be this one.
        self._thread.submit(embeddings, self._encoder, [WARM_UP_TEXT]).result()

    async def embed(self, texts: list[str], tag: str = "") -> list[Embedding]:
        """One embedding for each text, in order. ``tag`` stands for whose texts they are: what was embedded
        for one is no faster for another, or the time would tell who asked what.

        A text that is longer than the model reads (``EmbedderInfo.max_tokens``) is cut: its vector stands for
        the beginning alone, and ``Embedding.truncated`` says so.
        """
        if len(texts) > self._most:  # documents being indexed: they would wash the look-ups' texts out
            return await self._batches.run(texts)
        known = {text: found for text in dict.fromkeys(texts) if (found := self.recent.get(text, tag))}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for text, embedding in zip(missing, await self._batches.run(missing), strict=True):
            self.recent.put(text, embedding, tag)
            known[text] = embedding
        return [known[text] for text in texts]

    async def address(self) -> PrivateAddress:
        """Where gateways' look-ups send their texts."""
        if self._direct is None:
            self._direct = DirectCalls(EMBEDDER, {"embed": self.embed}, node_address())
        return self._direct.address

    async def describe(self) -> EmbedderInfo:
        encoder = self._encoder
        return EmbedderInfo(encoder.name, encoder.dimension, encoder.max_tokens, self._source, self._dtype)

    def __del__(self) -> None:
        """Serve calls it when the replica ends; calls that run are made again, through the handle."""
        direct: DirectCalls | None = getattr(self, "_direct", None)
        if direct is not None:
            direct.forget()

    async def _encode(self, texts: list[str]) -> list[Embedding]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, embeddings, self._encoder, texts)


def embeddings(encoder: TextEncoder, texts: list[str]) -> list[Embedding]:
    """What crosses the boundary, one for each text, in order."""
    encoded = encoder.encode(texts)
    return [
        Embedding(vector.tobytes(), tokens, tokens > encoder.max_tokens, unknown)
        for vector, tokens, unknown in zip(encoded.vectors, encoded.tokens, encoded.unknown, strict=True)
    ]
