"""``/v1/embeddings``: the Embedder in OpenAI's format."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from deployments.gateway.http import Exchange
from deployments.gateway.relay import Relay
from deployments.gateway.services import Services
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.errors import BadRequest, UnknownModel
from serve_app.openai.requests import EmbeddingRequest, parse_embedding, parse_json, required_string


class EmbeddingsEndpoint:
    """The embedder's own model is answered here; an engine's model (a pooling model) is relayed to."""

    def __init__(self, services: Services, relay: Relay) -> None:
        self._services = services
        self._relay = relay

    async def __call__(self, exchange: Exchange) -> None:
        self._services.identify(exchange)
        body = await exchange.read_body(self._services.settings.limits.max_body_bytes)
        model = required_string(parse_json(body), "model")
        settings = self._services.settings.embedder
        if settings is not None and model == settings.id:
            await self._embed(exchange, parse_embedding(body))
        elif model in self._services.fingerprints:
            await exchange.run_while_connected(self._relay.verbatim(exchange, model, body))
        else:
            raise UnknownModel(model, self._services.model_ids)

    async def _embed(self, exchange: Exchange, request: EmbeddingRequest) -> None:
        handle = self._services.embedder
        assert handle is not None, "settings name an embedder, so the builder bound one"
        info: EmbedderInfo = await handle.describe.remote()
        if request.dimensions not in {None, info.dimension}:
            raise BadRequest(
                f"`dimensions` is {request.dimensions}; {request.model} has {info.dimension}.",
                param="dimensions",
            )
        with exchange.timeline.step("embed"):
            embeddings: list[Embedding] = await handle.embed.remote(request.texts)
        _refuse_truncated(embeddings, info)
        await exchange.respond_json(_response(request, embeddings))


def _refuse_truncated(embeddings: Sequence[Embedding], info: EmbedderInfo) -> None:
    """A vector of a text's beginning is not what was asked for."""
    for position, embedding in enumerate(embeddings):
        if embedding.truncated:
            raise BadRequest(
                f"`input[{position}]` has {embedding.tokens} tokens; the model reads {info.max_tokens}.",
                param=f"input[{position}]",
                code="context_length_exceeded",
            )


def _response(request: EmbeddingRequest, embeddings: Sequence[Embedding]) -> dict[str, Any]:
    tokens = sum(embedding.tokens for embedding in embeddings)
    as_base64 = request.encoding_format == "base64"
    return {
        "object": "list",
        "model": request.model,
        "data": [
            {"object": "embedding", "index": index, "embedding": _encoded(embedding.vector, as_base64)}
            for index, embedding in enumerate(embeddings)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _encoded(vector: bytes, as_base64: bool) -> str | list[float]:
    """OpenAI's base64 is that of little-endian float32, which is what a vector already is."""
    return base64.b64encode(vector).decode() if as_base64 else np.frombuffer(vector, np.float32).tolist()
