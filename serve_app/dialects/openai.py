"""OpenAI's chat and text completions, and Promptly's own paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from serve_app.dialects.base import KEEP_ALIVE_COMMENT
from serve_app.errors import PromptlyError
from serve_app.openai import sse


class OpenAIStream:
    """The code that reads the answer notices ``[DONE]``, so the stream needs no state here."""

    passed: Callable[[bytes], None] | None = None
    has_ended: bool | None = None

    def event(self, error: PromptlyError, request_id: str) -> bytes:
        return sse.event(error.body())


class OpenAIDialect:
    """``{"error": {message, type, param, code}}``."""

    keep_alive = KEEP_ALIVE_COMMENT

    def headers(self, request_id: str) -> Mapping[str, str]:
        return {}

    def body(self, error: PromptlyError, request_id: str) -> bytes:
        return error.body()

    def stream(self) -> OpenAIStream:
        return OpenAIStream()
