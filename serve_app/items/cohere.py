"""Cohere's ``/v2/embed``: vectors by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from serve_app.items.shape import Answered, Split, encoded, without

FIELDS = ("texts", "images", "inputs")
Embeddings = dict[str, list[msgspec.Raw]]


class CohereShape:
    """``texts``, ``images`` or ``inputs``, of which exactly one is given."""

    family = "v2/embed"

    def split(self, fields: Mapping[str, Any]) -> Split | None:
        name = _field(fields)
        if name is None:
            return None
        mark = {"*image": True} if name == "images" else {}
        return Split(tuple(map(encoded, fields[name])), {**without(fields, name), **mark})

    def only(self, fields: Mapping[str, Any], wanted: Sequence[int]) -> dict[str, Any]:
        name = _field(fields)
        assert name is not None, "it was split"
        return {**fields, name: [fields[name][index] for index in wanted]}

    def read(self, body: bytes, count: int) -> Answered | None:
        try:
            head = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            by_type = msgspec.json.decode(head.pop("embeddings"), type=Embeddings)
        except (msgspec.MsgspecError, KeyError):
            return None
        if not by_type or any(len(vectors) != count for vectors in by_type.values()):
            return None
        values = ({name: vectors[index] for name, vectors in by_type.items()} for index in range(count))
        return Answered(tuple(map(msgspec.json.encode, values)), head)

    def head(self, request_id: str, created: int, model: str) -> Mapping[str, Any]:
        units = {"input_tokens": 0, "image_tokens": 0}
        meta = {"api_version": {"version": "2"}, "billed_units": units}
        return {"id": f"embd-{request_id}", "meta": meta, "response_type": "embeddings_by_type"}

    def write(self, fields: Mapping[str, Any], head: Mapping[str, Any], values: Sequence[bytes]) -> bytes:
        each = [msgspec.json.decode(value, type=dict[str, msgspec.Raw]) for value in values]
        by_type = {name: [vectors[name] for vectors in each] for name in each[0]}
        texts = {"texts": fields["texts"]} if fields.get("texts") else {}
        return encoded({**head, **texts, "embeddings": by_type})


def _field(fields: Mapping[str, Any]) -> str | None:
    named = [name for name in FIELDS if fields.get(name) is not None]
    given = fields[named[0]] if len(named) == 1 else None
    return named[0] if isinstance(given, list) and given else None
