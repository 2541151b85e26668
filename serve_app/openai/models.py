"""Lists of models: reads an engine's list, and writes our own entries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec


class Card(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class ModelList(msgspec.Struct):
    data: list[Card]


def context_tokens(body: bytes, model: str) -> int | None:
    """The context length of ``model`` in tokens, if the list has it, as vLLM's does."""
    try:
        cards = msgspec.json.decode(body, type=ModelList).data
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return next((card.max_model_len for card in cards if card.id == model), None)


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry of ``/v1/models``; ``created`` is Unix time in seconds.

    It has Anthropic's fields beside OpenAI's, so that either client reads it: ``type``, ``display_name`` and
    ``created_at`` (RFC 3339). It may have vLLM's: ``root`` is the model that an alias stands for, ``parent``
    the base model of an adapter, ``max_model_len`` the context length in tokens.
    """

    id: str
    object: str
    created: int
    owned_by: str
    type: str
    display_name: str
    created_at: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


def model_card(
    name: str,
    created: int,
    *,
    root: str | None = None,
    parent: str | None = None,
    max_model_len: int | None = None,
) -> ModelCard:
    return ModelCard(
        id=name,
        object="model",
        created=created,
        owned_by="promptly",
        type="model",
        display_name=name,
        created_at=datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        root=root,
        parent=parent,
        max_model_len=max_model_len,
    )


def model_list(cards: Sequence[ModelCard]) -> dict[str, Any]:
    """All of ``/v1/models``: one page, as OpenAI's and as Anthropic's clients read it."""
    ends = (cards[0].id, cards[-1].id) if cards else (None, None)
    return {"object": "list", "data": cards, "has_more": False, "first_id": ends[0], "last_id": ends[1]}
