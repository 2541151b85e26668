"""Values that say how a stream continues after its upstream ended too early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from serve_app.openai.bounds import COMPLETIONS, default_output
from serve_app.openai.requests import Endpoint, ParsedRequest

RESUME_PATH = "/v1/chat/completions/resume"
"""A path of our own engines: the body is a chat's, and ``TOLD_FIELD`` holds the tokens so far."""

TOLD_FIELD = "told_token_ids"


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """An engine's limits in tokens, as far as they are known.

    A continuation states its own limit, so the limit that the engine applies by default must be known.
    ``context``: prompt and answer together. ``default``: for a chat's answer (``max_new_tokens`` in the
    model's generation config). ``cap``: for every answer (the same, from the engine's settings).
    """

    context: int | None = None
    default: int | None = None
    cap: int | None = None

    def answer_tokens(self, request: ParsedRequest, prompt_tokens: int) -> int | None:
        """The most tokens that this request's answer may have; ``None`` if not known."""
        asked = _asked(request)
        if asked is None and self.context is None:
            return None
        room = None if self.context is None else self.context - prompt_tokens
        named = asked if asked is not None else self.default
        return min(bound for bound in (room, named, self.cap) if bound is not None)


def _asked(request: ParsedRequest) -> int | None:
    generation = request.generation
    if request.endpoint is Endpoint.COMPLETIONS:
        named = generation.max_tokens
        return default_output(COMPLETIONS, request.fields) if named is None else named
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
class SameChat:
    """The same chat for another engine. ``told``: the answer's tokens so far, in the pieces in which they
    came; empty: nothing is known of it, the chat begins again."""

    told: list[list[int]]

    @property
    def tokens(self) -> int:
        return sum(map(len, self.told))


@dataclass(frozen=True, slots=True)
class Ending:
    """The answer was complete; ``events`` are what is left to send."""

    events: bytes
