"""Texts one by one: ``/v1/embeddings``, ``/pooling`` and ``/classify``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.items.shape import Answered, Split, at, encoded, read_list, without

NOT_JSON = ("bytes", "bytes_only")
"""Values of ``encoding_format`` whose answers are bytes; no set, because a client may send an object."""

INPUT = "input"
MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class ListShape:
    """``input``: a text, token ids, or a list of either; or ``messages``: a conversation, or a list of
    them."""

    family: str
    prefix: str
    """Prefix of the ids that vLLM gives to its answers."""

    def split(self, fields: Mapping[str, Any]) -> Split | None:
        name = _field(fields)
        items = None if name is None else _items(fields[name])
        if name is None or items is None or fields.get("encoding_format") in NOT_JSON:
            return None
        return Split(tuple(map(encoded, items)), without(fields, name))

    def only(self, fields: Mapping[str, Any], wanted: Sequence[int]) -> dict[str, Any]:
        name = _field(fields)
        items = None if name is None else _items(fields[name])
        assert name is not None, "it was split"
        assert items is not None, "it was split"
        if items[0] is fields[name]:
            return dict(fields)
        return {**fields, name: [items[index] for index in wanted]}

    def read(self, body: bytes, count: int) -> Answered | None:
        return read_list(body, "data", count)

    def head(self, request_id: str, created: int, model: str) -> Mapping[str, Any]:
        return {
            "id": f"{self.prefix}-{request_id}",
            "object": "list",
            "created": created,
            "model": model,
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
        }

    def write(self, fields: Mapping[str, Any], head: Mapping[str, Any], values: Sequence[bytes]) -> bytes:
        return encoded({**head, "data": [at(index, value) for index, value in enumerate(values)]})


def _field(fields: Mapping[str, Any]) -> str | None:
    """The field that holds the items; ``None`` where none or both do."""
    named = [name for name in (INPUT, MESSAGES) if fields.get(name)]
    return named[0] if len(named) == 1 else None


def _items(given: Any) -> list[Any] | None:
    """``None``: it is nothing that can be told apart. A list of numbers is one text, a list of messages one
    conversation."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        return None
    first = type(given[0])
    if any(type(item) is not first for item in given):
        return None
    if first in (str, list):
        return given
    return [given] if first in (int, dict) else None
