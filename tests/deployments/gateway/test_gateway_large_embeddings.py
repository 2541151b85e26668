"""A large answer of the embedder: the same bytes as a small one's, encoded while others get their turn."""

from __future__ import annotations

import asyncio
import base64

import numpy as np
import pytest
from support.gateway import gateway
from support.handles import LocalHandle

from deployments.gateway.endpoints.embeddings import FLOATS_AT_ONCE, answer_in_parts
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.openai.requests import EmbeddingRequest

DIMENSION = 384
INFO = EmbedderInfo("words", DIMENSION, 64)
MOST = 2048


class Vectors:
    """The vector of a text is made of the text's number."""

    async def embed(self, texts: list[str], tag: str = "") -> list[Embedding]:
        return [Embedding(vector(int(text)).tobytes(), 1, False) for text in texts]

    async def describe(self) -> EmbedderInfo:
        return INFO


def vector(number: int) -> np.ndarray:
    return (np.arange(DIMENSION, dtype=np.float32) + number) / 7


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("count", [1, 21, 22, MOST])
async def test_every_vector_arrives_in_its_place(count: int, encoding: str) -> None:
    embedder = {"id": "words", "source": "words"}
    async with gateway(handles={"embedder": LocalHandle(Vectors())}, embedder=embedder) as running:
        body = {"model": "words", "input": [str(number) for number in range(count)]}
        answered = await running.send({**body, "encoding_format": encoding}, "/v1/embeddings")
    assert answered.status == 200
    assert int(answered.headers["content-length"]) == len(answered.body)
    value = answered.json
    assert list(value) == ["object", "model", "data", "usage"]
    assert value["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert [each["index"] for each in value["data"]] == list(range(count))
    for number, each in enumerate(value["data"]):
        given = each["embedding"]
        found = np.frombuffer(base64.b64decode(given), "<f4") if encoding == "base64" else np.float32(given)
        assert np.array_equal(found, vector(number))


async def test_others_get_their_turn_between_the_parts() -> None:
    texts = [str(number) for number in range(MOST)]
    request = EmbeddingRequest(model="words", input=texts)
    turns = parts = 0
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal turns
        turns += 1

    loop.call_soon(turn)
    async for part in answer_in_parts(request, await Vectors().embed(texts), DIMENSION, MOST):
        parts += 1
        assert part.count(b'"index"') <= FLOATS_AT_ONCE // DIMENSION
        assert turns >= parts - 2  # each turn before this part has been taken but for the last one
        loop.call_soon(turn)
    assert parts > MOST * DIMENSION // FLOATS_AT_ONCE
