"""``/v1/embeddings``: the Embedder in OpenAI's format."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from deployments.gateway.endpoints.items import ItemsEndpoint
from deployments.gateway.endpoints.verbatim import Verbatim
from deployments.gateway.request.exchange import JSON, Exchange
from deployments.gateway.request.gate import uses_model
from deployments.gateway.request.order import Order
from deployments.gateway.request.tenant_room import Places, TenantRoom
from deployments.platform.serve import call_errors, cause_of
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.errors import BadRequest, NoReplica, OverCapacity
from serve_app.openai.requests import EmbeddingRequest, embedding_request
from serve_app.openai.usage import Measured, TokenCounts
from serve_app.request.auth import Identity
from serve_app.request.tenant_marks import TenantMarks
from serve_app.request.timing import EMBEDDER
from serve_app.routing.prompt import BYTES_PER_TOKEN
from serve_app.settings import EmbedderSettings, LimitSettings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

FLOATS_AT_ONCE = 8192
"""Encoding so many takes about 2 ms."""

LEFT_S = 30.0
"""Texts of a client that left count for so long at most; a pass takes less."""

logger = logging.getLogger("ray.serve")


class EmbeddingsEndpoint:
    """Requests for the embedder's own model are answered here; those for an engine's model (a pooling model)
    go to ``items``. ``embedder`` and ``handle`` are ``None`` without an embedder."""

    def __init__(
        self,
        verbatim: Verbatim,
        items: ItemsEndpoint,
        *,
        embedder: EmbedderSettings | None,
        handle: DeploymentHandle[Any] | None,
        marks: TenantMarks,
        limits: LimitSettings,
        part_of: Callable[[int], int] = int,
    ) -> None:
        """``part_of``: how much of a limit of the application is this gateway's."""
        self._verbatim = verbatim
        self._items = items
        self._embedder = embedder
        self._handle = handle
        self._marks = marks
        self._most_texts = limits.texts_at_embedder
        # The largest request fits, whatever this gateway's part is: it would be refused for ever.
        largest = limits.max_embedding_inputs
        self._room = TenantRoom(None, self._most_texts, lambda most: max(largest, part_of(most)))
        self._calls: set[asyncio.Task[list[Embedding]]] = set()

    async def __call__(self, exchange: Exchange) -> None:
        asked = await self._verbatim.read(exchange, exchange.identity)
        if self._embedder is not None and asked.model == self._embedder.id:
            uses_model(exchange, asked.model)
            request = embedding_request(asked.fields)
            await exchange.run(self._embed(exchange, request, asked.identity), asked.timeout_s)
            return
        await self._items.answer(asked)

    async def _embed(self, exchange: Exchange, request: EmbeddingRequest, identity: Identity) -> None:
        if exchange.account is not None:
            estimated = sum(map(len, request.texts)) / BYTES_PER_TOKEN
            size = sum(len(text.encode()) for text in request.texts)
            order = Order(request.model, request.model, estimated, 0, generates=False, size=size)
            await exchange.account.place(order)
        info, embeddings = await self._call(exchange, request.texts, identity)
        _require_possible_cut(request, info)
        if request.dimensions not in {None, info.dimension}:
            raise BadRequest(
                f"`dimensions` is {request.dimensions}; {request.model} has {info.dimension}.",
                param="dimensions",
            )
        if request.truncate_prompt_tokens is None:
            _refuse_truncated(embeddings, info)
        tokens = sum(min(embedding.tokens, info.max_tokens) for embedding in embeddings)
        exchange.facts.measured = Measured(TokenCounts(prompt=tokens))
        parts = [part async for part in answer_in_parts(request, embeddings, info.dimension, tokens)]
        if len(embeddings) * info.dimension <= FLOATS_AT_ONCE:
            await exchange.respond(200, b"".join(parts), JSON, exchange.server_timing(ended=True))
            return
        length = {"content-length": str(sum(map(len, parts)))}
        await exchange.start(200, JSON, length | exchange.server_timing(ended=True))
        for part in parts[:-1]:
            await exchange.write(part)
        await exchange.write(parts[-1], more=False)

    async def _call(
        self, exchange: Exchange, texts: list[str], identity: Identity
    ) -> tuple[EmbedderInfo, list[Embedding]]:
        assert self._handle is not None, "settings name an embedder, so the builder bound one"
        response, call = self._begin(texts, identity.tenant)
        try:
            with exchange.timeline.step(EMBEDDER):
                # Until the embedder's end of it, which may be later than the client's, they are the tenant's.
                return await self._handle.describe.remote(), await asyncio.shield(call)
        except call_errors() as error:
            logger.warning("the embedder failed: %r", cause_of(error))
            raise NoReplica("The embedder cannot answer now.", code="no_replica") from error
        finally:
            if not call.done():
                _end(response, call)

    def _begin(self, texts: list[str], tenant: str) -> tuple[Any, asyncio.Task[list[Embedding]]]:
        """Serve's response, which ``cancel`` ends at the embedder, and the task that waits for it.

        Raises: OverCapacity: the tenant has too many texts at the embedder.
        """
        if self._room.free(tenant) < len(texts):
            raise OverCapacity(
                f"One tenant may have {self._most_texts} texts at the embedder at once "
                "(limits.max_embedding_texts_per_tenant).",
                1,
            )
        assert self._handle is not None
        response = self._handle.embed.remote(texts, self._marks.embedding_tag(tenant))
        places = self._room.take(tenant, len(texts))
        call = asyncio.get_running_loop().create_task(_in_places(response, places))
        self._calls.add(call)
        call.add_done_callback(self._ended)
        return response, call

    def _ended(self, call: asyncio.Task[list[Embedding]]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # seen, also where the client has left


def _end(response: Any, call: asyncio.Task[list[Embedding]]) -> None:
    """The caller has left: the embedder drops the texts that are in no pass yet. Serve promises no end."""
    with suppress(Exception):
        response.cancel()
    asyncio.get_running_loop().call_later(LEFT_S, call.cancel)


async def _in_places(response: Any, places: Places) -> list[Embedding]:
    with places:
        found: list[Embedding] = await response
    return found


def _require_possible_cut(request: EmbeddingRequest, info: EmbedderInfo) -> None:
    """A long text is cut to what the model reads, or not at all."""
    if request.truncate_prompt_tokens not in {None, -1, info.max_tokens}:
        raise BadRequest(
            f"`truncate_prompt_tokens` is {request.truncate_prompt_tokens}; {request.model} cuts at "
            f"{info.max_tokens} tokens only: expected -1 or {info.max_tokens}.",
            param="truncate_prompt_tokens",
        )
    if request.truncation_side is not None:
        raise BadRequest(
            f"`truncation_side` cannot be chosen for {request.model}: its tokenizer chooses the end.",
            param="truncation_side",
        )


def _refuse_truncated(embeddings: Sequence[Embedding], info: EmbedderInfo) -> None:
    """The vector of a text's beginning is not the vector of the text."""
    for position, embedding in enumerate(embeddings):
        if embedding.truncated:
            raise BadRequest(
                f"`input[{position}]` has {embedding.tokens} tokens; the model reads {info.max_tokens}. "
                "With `truncate_prompt_tokens: -1` a text is cut to what the model reads.",
                param=f"input[{position}]",
                code="context_length_exceeded",
            )


async def answer_in_parts(
    request: EmbeddingRequest, embeddings: Sequence[Embedding], dimension: int, tokens: int
) -> AsyncIterator[bytes]:
    """The answer's JSON. Between its parts other requests get their turn: encoding two thousand vectors at
    once would stop every stream for a tenth of a second."""
    as_base64 = request.encoding_format == "base64"
    at_once = max(1, FLOATS_AT_ONCE // dimension)
    before = b'{"object":"list","model":%b,"data":[' % msgspec.json.encode(request.model)
    for begin in range(0, len(embeddings), at_once):
        vectors = [
            {"object": "embedding", "index": index, "embedding": _encoded(embedding.vector, as_base64)}
            for index, embedding in enumerate(embeddings[begin : begin + at_once], start=begin)
        ]
        yield before + msgspec.json.encode(vectors)[1:-1]
        before = b","
        if begin + at_once < len(embeddings):
            await asyncio.sleep(0)
    yield b'],"usage":' + msgspec.json.encode({"prompt_tokens": tokens, "total_tokens": tokens}) + b"}"


def _encoded(vector: bytes, as_base64: bool) -> str | list[float]:
    """OpenAI's base64 is that of little-endian float32, which is what a vector already is."""
    return base64.b64encode(vector).decode() if as_base64 else np.frombuffer(vector, np.float32).tolist()
