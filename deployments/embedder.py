"""The Embedder deployment: a sentence-transformers model behind dynamic batching."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ray import serve

from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import EmbedderSettings

WARM_UP_TEXT = "What does the first request find already warm?"


class Embedder:
    """Texts to unit vectors. Calls that arrive while a batch runs form the next batch."""

    def __init__(self, settings: EmbedderSettings) -> None:
        self._settings = settings
        self._model = _load(settings)
        # torch runs on a thread of its own, so that the replica's loop keeps answering health checks.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        batch: Any = self._embed_batch  # serve.batch adds the setters below; its type does not say so
        batch.set_max_batch_size(settings.max_batch_size)
        batch.set_batch_wait_timeout_s(settings.batch_wait_ms / 1000)
        self._encode([WARM_UP_TEXT])

    async def embed(self, texts: list[str]) -> list[Embedding]:
        """One embedding for each text, in order."""
        return await self._embed_batch(texts)

    async def describe(self) -> EmbedderInfo:
        name = f"{self._settings.source}:{self._settings.dtype}"
        return EmbedderInfo(name, int(self._model.get_embedding_dimension()), self._max_tokens)

    @serve.batch
    async def _embed_batch(self, calls: list[list[str]]) -> list[list[Embedding]]:
        """One pass over the texts of every call; each call gets its own back."""
        texts = [text for call in calls for text in call]
        found = iter(await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, texts))
        return [[next(found) for _ in call] for call in calls]

    def _encode(self, texts: Sequence[str]) -> list[Embedding]:
        vectors = self._model.encode(
            list(texts),
            batch_size=self._settings.max_batch_size,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        lengths = self._token_counts(texts)
        return [
            Embedding(vector.astype("float32").tobytes(), length, length > self._max_tokens)
            for vector, length in zip(vectors, lengths, strict=True)
        ]

    def _token_counts(self, texts: Sequence[str]) -> list[int]:
        encoded = self._model.tokenizer(
            list(texts),
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return [len(ids) for ids in encoded["input_ids"]]

    @property
    def _max_tokens(self) -> int:
        return int(self._model.max_seq_length)


def _load(settings: EmbedderSettings) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer

    if settings.device == "cpu":
        torch.set_num_threads(settings.threads)
    source = ModelStore(default_cache_dir()).resolve(settings.source)
    dtype = getattr(torch, settings.dtype)
    return SentenceTransformer(source, device=settings.device, model_kwargs={"dtype": dtype})
