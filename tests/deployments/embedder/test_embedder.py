"""The Embedder as its callers see it, on the real model."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from embedding_samples import TEXTS
from support.graph import eventually

from deployments.embedder import EncoderSpec
from deployments.embedder.deployment import Embedder
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.settings import EmbedderSettings

MOST = 8


@pytest.fixture
def embedder(spec: EncoderSpec) -> Embedder:
    return Embedder(EmbedderSettings(id="e", source=spec.source, threads=1, max_batch_size=MOST))


def vector(embedding: Embedding) -> np.ndarray:
    return np.frombuffer(embedding.vector, np.float32)


async def test_it_says_which_vectors_it_makes(embedder: Embedder, spec: EncoderSpec) -> None:
    assert await embedder.describe() == EmbedderInfo(f"{spec.source}:float32", 384, 256, spec.source)


async def test_calls_at_once_get_their_own_vectors(embedder: Embedder) -> None:
    whole = await embedder.embed(list(TEXTS))
    each = await asyncio.gather(*(embedder.embed([text]) for text in TEXTS))
    assert len(whole) == len(TEXTS)
    for together, [alone] in zip(whole, each, strict=True):
        assert (together.tokens, together.truncated, together.unknown) == (
            alone.tokens,
            alone.truncated,
            alone.unknown,
        )
        assert np.abs(vector(together) - vector(alone)).max() < 1e-5


async def test_a_text_longer_than_the_model_reads_is_flagged(embedder: Embedder) -> None:
    found = await embedder.embed(["sea " * 254, "sea " * 255])
    assert [(one.tokens, one.truncated) for one in found] == [(256, False), (257, True)]


async def test_a_text_that_was_looked_up_is_not_embedded_again(embedder: Embedder) -> None:
    [first] = await embedder.embed(["What is asked twice?"])
    [again] = await embedder.embed(["What is asked twice?"])
    assert again is first
    assert (embedder.recent.hits, embedder.recent.misses) == (1, 1)


async def test_the_same_text_twice_in_a_call_is_embedded_once(embedder: Embedder) -> None:
    first, other, again = await embedder.embed(["a", "b", "a"])
    assert again is first
    assert other is not first
    assert len(embedder.recent) == 2


async def test_documents_being_indexed_do_not_wash_look_ups_out(embedder: Embedder) -> None:
    await embedder.embed(["kept"])
    await embedder.embed([f"document {number}" for number in range(MOST + 1)])
    assert len(embedder.recent) == 1


async def test_no_texts_are_no_embeddings(embedder: Embedder) -> None:
    assert await embedder.embed([]) == []


async def test_a_text_does_not_wait_for_a_list_and_its_vector_is_the_same_in_one(embedder: Embedder) -> None:
    numbered = [f"What is in document {number}?" for number in range(600)]
    indexing = asyncio.ensure_future(embedder.embed(numbered, "other"))

    async def is_running() -> bool:
        return 0 < embedder.waiting < len(numbered)

    assert await eventually(is_running, within_s=30)
    [alone] = await embedder.embed([numbered[0]], "mine")
    assert not indexing.done()
    [first, *_] = await indexing
    assert np.abs(vector(first) - vector(alone)).max() < 1e-5
    assert embedder.waiting == 0
