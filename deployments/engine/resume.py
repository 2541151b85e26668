"""An ASGI middleware before vLLM's own app: a chat that goes on where another engine's answer was cut.

The request comes on a path of its own, which only gateways know. Its body is the client's chat, and the
answer's tokens so far. vLLM's app gets the chat; its engine is told the tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeGuard

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.engine.rewriting import decoded, once, with_length
from deployments.wire.listener import read_body
from serve_app.openai.continuation import RESUME_PATH, TOLD_FIELD
from serve_app.openai.requests import Endpoint

BAD_REQUEST = 400

Telling = Callable[[Sequence[Sequence[int]]], AbstractContextManager[None]]
"""A request that is made inside goes on with the answer that has these tokens so far."""


class ResumedChats:
    """The middleware before ``app``. ``vocabulary``: token ids are below it."""

    def __init__(self, app: ASGIApp, telling: Telling, vocabulary: int) -> None:
        self._app = app
        self._telling = telling
        self._vocabulary = vocabulary

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != RESUME_PATH:
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)
        if body is None:  # the client disconnected
            return
        chat = decoded(body) or {}
        told = chat.pop(TOLD_FIELD, None)
        if not self._are_tokens(told):
            await _refusal()(scope, receive, send)
            return
        body, path = json.dumps(chat).encode(), Endpoint.CHAT.value
        scope = {**with_length(scope, len(body)), "path": path, "raw_path": path.encode()}
        with self._telling(told):
            await self._app(scope, once(body, receive), send)

    def _are_tokens(self, told: Any) -> TypeGuard[list[list[int]]]:
        """Other numbers would break the engine for all."""
        if not isinstance(told, list) or not told:
            return False
        return all(isinstance(piece, list) and piece and all(map(self._is_token, piece)) for piece in told)

    def _is_token(self, value: Any) -> bool:
        return type(value) is int and 0 <= value < self._vocabulary


def _refusal() -> JSONResponse:
    message = f"`{TOLD_FIELD}` must be a list of lists of token ids, none of them empty."
    error = {"message": message, "type": "invalid_request_error", "param": TOLD_FIELD, "code": BAD_REQUEST}
    return JSONResponse({"error": error}, BAD_REQUEST)
