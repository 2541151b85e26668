"""An exchange whose client does not wait: the request of a background response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from deployments.gateway.request.exchange import Exchange
from serve_app.dialects import Reading
from serve_app.errors import PromptlyError


class DetachedExchange(Exchange):
    """Goes on with the request of ``original``, under its id, which was read as ``reading``; its response
    goes to ``passed`` piece by piece. An error is kept in ``failure``."""

    def __init__(
        self, original: Exchange, body: bytes, reading: Reading, passed: Callable[[bytes], None]
    ) -> None:
        self._take = passed
        super().__init__(original.scope_again(), self._receive_nothing, self._send_to)
        self.body, self.loaded_bytes = body, original.loaded_bytes
        self.reading = reading
        self.request_id, self.trace_id = original.request_id, original.trace_id
        self.identity = original.identity
        self.facts.tenant = original.facts.tenant
        self.facts.route, self.facts.endpoint = original.facts.route, original.facts.endpoint
        self.failure: PromptlyError | None = None

    async def fail(self, error: PromptlyError) -> None:
        self.note(error)
        self.failure, self.status = error, error.status

    async def _receive_nothing(self) -> dict[str, Any]:
        """This client never leaves."""
        await asyncio.get_running_loop().create_future()
        return {}

    async def _send_to(self, message: Any) -> None:
        if message["type"] == "http.response.body" and message["body"]:
            self._take(message["body"])
