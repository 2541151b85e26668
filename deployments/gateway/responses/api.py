"""The handlers of the Responses API in one gateway, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.exchange import Handler
from deployments.gateway.request.finished import Finished
from deployments.gateway.responses.background import Background
from deployments.gateway.responses.conversations import Conversations
from deployments.gateway.responses.endpoint import CreateResponse, StoredResponses
from deployments.gateway.responses.guarding import StoredTexts
from deployments.gateway.responses.reading import ResponsesReader
from deployments.gateway.responses.store_client import ResponseStoreClient
from serve_app.model_choice.offers import Offers
from serve_app.settings import Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


class ResponsesApi:
    """Without a store (``store`` is ``None``, or ``responses.enabled`` is off) requests are answered and
    nothing is kept. Made inside a running event loop; ``close`` ends it."""

    def __init__(
        self,
        settings: Settings,
        store: DeploymentHandle[Any] | None,
        *,
        bodies: Bodies,
        offers: Offers,
        generating: Callable[[ResponsesReader], Handler],
        finished: Finished,
        guards: Guards | None,
    ) -> None:
        """``generating`` makes the endpoint that answers what the reader reads."""
        owner = uuid4().hex
        own = settings.responses
        self._client = None if store is None or not own.enabled else ResponseStoreClient(store, own)
        texts = StoredTexts(guards)
        generate = generating(ResponsesReader(self._client, texts))
        self._background = (
            None if self._client is None else Background(self._client, own, owner, generate, finished)
        )
        create = CreateResponse(offers, generate, self._background)
        stored = StoredResponses(
            self._client,
            self._background,
            settings.limits.request_timeout_s,
            settings.gateway.keep_alive_s,
        )
        conversations = Conversations(bodies, self._client, settings.limits, texts)
        self.handlers: dict[str, Handler] = {
            "responses": create,
            "response": stored.one,
            "response_items": stored.input_items,
            "response_cancel": stored.cancel,
            "conversations": conversations.create,
            "conversation": conversations.one,
            "conversation_items": conversations.items,
            "conversation_item": conversations.item,
        }

    async def close(self) -> None:
        if self._background is not None:
            await self._background.close()
        if self._client is not None:
            await self._client.close()
