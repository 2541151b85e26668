"""Lists of models: reads an engine's list, and writes our own entries."""

from __future__ import annotations

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

    In addition to OpenAI's fields it may have vLLM's: ``root`` is the model that an alias stands for,
    ``parent`` the base model of an adapter, ``max_model_len`` the context length in tokens.
    """

    id: str
    object: str
    created: int
    owned_by: str
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
        root=root,
        parent=parent,
        max_model_len=max_model_len,
    )
