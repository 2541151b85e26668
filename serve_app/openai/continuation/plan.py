"""What comes after an upstream that ended too early, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from serve_app.openai.requests import Endpoint, ParsedRequest

DEFAULT_MAX_TOKENS = 16
"""Of a text completion that names no limit, or null: OpenAI's, and vLLM's."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """An engine's bounds in tokens, as far as they are known.

    A continuation names its own limit, so it has to know the one that the engine put in where the request
    named none. ``context``: prompt and answer together. ``default``: of a chat's answer (``max_new_tokens``
    in the model's generation config). ``cap``: of every answer (the same, set in the engine's settings).
    """

    context: int | None = None
    default: int | None = None
    cap: int | None = None

    def answer_tokens(self, request: ParsedRequest, prompt_tokens: int) -> int | None:
        """The most tokens that this request's answer may have; ``None`` if that is not known."""
        asked = _asked(request)
        if asked is None and self.context is None:
            return None
        room = None if self.context is None else self.context - prompt_tokens
        named = asked if asked is not None else self.default
        return min(bound for bound in (room, named, self.cap) if bound is not None)


def _asked(request: ParsedRequest) -> int | None:
    generation = request.generation
    if request.endpoint is Endpoint.COMPLETIONS:
        return generation.max_tokens if generation.max_tokens is not None else DEFAULT_MAX_TOKENS
    if generation.max_completion_tokens is not None:
        return generation.max_completion_tokens
    return generation.max_tokens


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request for an engine: the path, and the body's fields."""

    endpoint: Endpoint
    fields: dict[str, Any]

    def body(self, **changes: Any) -> bytes:
        """The body as JSON, with ``changes`` (such as the engine's own name for the model)."""
        return msgspec.json.encode(self.fields | changes)


@dataclass(frozen=True, slots=True)
class Ending:
    """The whole answer was there; ``events`` are what is left to say."""

    events: bytes
