"""``/v1/messages`` and ``/v1/messages/count_tokens``: what is Anthropic's about them. The answer itself is a
chat's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deployments.gateway.endpoints.verbatim import Verbatim
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.images import Images
from serve_app.dialects import Reading
from serve_app.dialects.anthropic import (
    InlineSystem,
    TokenCount,
    count_request,
    inline_system_of,
    read_messages,
)
from serve_app.openai.requests import Endpoint, generation_from
from serve_app.request.auth import Identity
from serve_app.settings import GatewaySettings
from serve_app.settings.paths import ASKED_AS


class MessagesReader:
    """Reads requests for the client that sends them."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings

    async def __call__(self, exchange: Exchange, identity: Identity, fields: Mapping[str, Any]) -> Reading:
        return read_messages(fields, self.inline(exchange))

    def inline(self, exchange: Exchange) -> InlineSystem:
        """What becomes of this client's system messages behind the first turn."""
        settings = self._settings
        user_agent = exchange.headers.get("user-agent")
        return inline_system_of(user_agent, settings.inline_system_clients, settings.inline_system)


class CountTokens:
    """Asks an engine for the tokens of the prompt that a request would give it."""

    def __init__(self, verbatim: Verbatim, images: Images, reader: MessagesReader) -> None:
        self._verbatim = verbatim
        self._images = images
        self._reader = reader

    async def __call__(self, exchange: Exchange) -> None:
        identity = exchange.identity
        asked = await self._verbatim.read(exchange, identity, is_conversation=True)
        fields = count_request(asked.fields, self._reader.inline(exchange))
        self._verbatim.offered(asked)
        chat = generation_from(Endpoint.CHAT, await self._images.take_in(fields, identity.tenant))
        to_engine = replace(asked, path=ASKED_AS[exchange.path], fields=dict(chat.fields), body=chat.body)
        await self._verbatim.relay(to_engine, weight=1, in_parts=False, writer=TokenCount())
