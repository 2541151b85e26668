"""An exchange whose client does not wait: the request of a background response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from deployments.gateway.request.exchange import Exchange
from serve_app.dialects.responses.ids import ItemIds
from serve_app.errors import PromptlyError


class DetachedExchange(Exchange):
    """Takes the request of ``original`` once more; its response goes to ``passed`` piece by piece. An error
    is kept in ``failure``."""

    def __init__(
        self, original: Exchange, body: bytes, ids: ItemIds, passed: Callable[[bytes], None]
    ) -> None:
        self._body: bytes | None = body
        self._take = passed
        super().__init__(original.scope_again(), self._receive_body, self._send_to)
        self.ids = ids
        self.failure: PromptlyError | None = None

    async def fail(self, error: PromptlyError) -> None:
        self.failure = error
        self.facts.error = error.details.code or error.details.type

    async def _receive_body(self) -> dict[str, Any]:
        """The body, and then nothing for ever: this client never leaves."""
        if self._body is None:
            await asyncio.get_running_loop().create_future()
        body, self._body = self._body or b"", None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send_to(self, message: Any) -> None:
        if message["type"] == "http.response.body" and message["body"]:
            self._take(message["body"])
