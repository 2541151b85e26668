"""Requests that are one item: ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.items.shape import Answered, Split, encoded, without


@dataclass(frozen=True, slots=True)
class WholeShape:
    """The answer is the item; it names no request and no time."""

    family: str
    field: str

    def split(self, fields: Mapping[str, Any]) -> Split | None:
        if fields.get(self.field) is None and fields.get("messages") is None:
            return None
        return Split((encoded(without(fields)),), {})

    def only(self, fields: Mapping[str, Any], wanted: Sequence[int]) -> dict[str, Any]:
        return dict(fields)

    def read(self, body: bytes, count: int) -> Answered | None:
        return Answered((body,), {}) if body.startswith(b"{") else None

    def head(self, request_id: str, created: int, model: str) -> Mapping[str, Any]:
        return {}

    def write(self, fields: Mapping[str, Any], head: Mapping[str, Any], values: Sequence[bytes]) -> bytes:
        return values[0]
