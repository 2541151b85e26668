"""Which session a request names: all requests of one conversation, or of one agent at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLAUDE_CODE_HEADER = "x-claude-code-session-id"
CODEX_HEADERS = ("session-id", "session_id")
"""Codex's versions differ in the spelling."""


def named_session(headers: Mapping[str, str], fields: Mapping[str, Any], own_header: str) -> str | None:
    """The first name that a request gives, from what says most about one conversation to what says least.
    ``headers`` are in lower case; ``fields`` are those of the body, in the client's own dialect.

    ``previous_response_id`` is no name: it is another at each turn, so the home that it would give never saw
    the chain. A chain's name is its first response, which the store knows (``Reading.session``).
    """
    for name in (own_header, CLAUDE_CODE_HEADER):
        if headers.get(name):
            return headers[name]
    user = _text(_inside(fields.get("metadata"), "user_id"))
    if user:
        return user
    for name in CODEX_HEADERS:
        if headers.get(name):
            return headers[name]
    conversation = fields.get("conversation")
    return _text(fields.get("prompt_cache_key")) or _text(conversation) or _text(_inside(conversation, "id"))


def _inside(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
