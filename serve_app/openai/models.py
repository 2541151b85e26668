"""An engine's list of models, as far as it says more than names."""

from __future__ import annotations

import msgspec


class Card(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class ModelList(msgspec.Struct):
    data: list[Card]


def context_tokens(body: bytes, model: str) -> int | None:
    """The context length of ``model`` in tokens, if the list says so: vLLM's does."""
    try:
        cards = msgspec.json.decode(body, type=ModelList).data
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return next((card.max_model_len for card in cards if card.id == model), None)
