"""Pairs of texts: ``/v1/score`` and ``/v1/rerank``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from serve_app.items.shape import Answered, Split, at, encoded, read_list, without

SIDES = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""The names that vLLM 0.29 takes for the two sides of a score."""

TOP_N = "top_n"


class ScoreShape:
    """One text with each of several, or as many with as many."""

    family = "score"

    def split(self, fields: Mapping[str, Any]) -> Split | None:
        names = _sides(fields)
        if names is None:
            return None
        left, right = (_listed(fields[name]) for name in names)
        if not right or len(left) not in (1, len(right)):
            return None  # the engine says what is wrong
        if len(left) == 1:
            return Split(_pairs(left[0], right), without(fields, *names), encoded(left[0]))
        pairs = tuple(encoded(pair) for pair in zip(left, right, strict=True))
        return Split(pairs, without(fields, *names))

    def only(self, fields: Mapping[str, Any], wanted: Sequence[int]) -> dict[str, Any]:
        names = _sides(fields)
        assert names is not None, "it was split"
        first, second = names
        left, right = _listed(fields[first]), _listed(fields[second])
        kept = left if len(left) == 1 else [left[index] for index in wanted]
        return {**fields, first: kept, second: [right[index] for index in wanted]}

    def read(self, body: bytes, count: int) -> Answered | None:
        return read_list(body, "data", count)

    def head(self, request_id: str, created: int, model: str) -> Mapping[str, Any]:
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {
            "id": f"score-{request_id}",
            "object": "list",
            "created": created,
            "model": model,
            "usage": usage,
        }

    def write(self, fields: Mapping[str, Any], head: Mapping[str, Any], values: Sequence[bytes]) -> bytes:
        return encoded({**head, "data": [at(index, value) for index, value in enumerate(values)]})


class Relevance(msgspec.Struct):
    relevance_score: float


class RerankShape:
    """One query with several documents, answered in the order of their relevance."""

    family = "rerank"

    def split(self, fields: Mapping[str, Any]) -> Split | None:
        query, documents = fields.get("query"), fields.get("documents")
        if not query or not documents or _top_n(fields) is None:
            return None
        pairs = _pairs(query, _listed(documents))
        return Split(pairs, without(fields, "query", "documents", TOP_N), encoded(query))

    def only(self, fields: Mapping[str, Any], wanted: Sequence[int]) -> dict[str, Any]:
        documents = _listed(fields["documents"])
        asked = {name: value for name, value in fields.items() if name != TOP_N}
        return {**asked, "documents": [documents[index] for index in wanted]}

    def read(self, body: bytes, count: int) -> Answered | None:
        answered = read_list(body, "results", count)
        if answered is None:
            return None
        try:
            for value in answered.values:
                _relevance(value)
        except msgspec.ValidationError:
            return None
        return answered

    def head(self, request_id: str, created: int, model: str) -> Mapping[str, Any]:
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"id": f"score-{request_id}", "model": model, "usage": usage}

    def write(self, fields: Mapping[str, Any], head: Mapping[str, Any], values: Sequence[bytes]) -> bytes:
        """The most relevant first; equal ones in the order of the request, as vLLM has them."""
        ordered = sorted(enumerate(values), key=lambda item: -_relevance(item[1]))
        top_n = _top_n(fields) or len(ordered)
        return encoded({**head, "results": [at(index, value) for index, value in ordered[:top_n]]})


PAIRED = frozenset({ScoreShape.family, RerankShape.family})
"""The families whose texts are read together with others."""


def _relevance(value: bytes) -> float:
    return msgspec.json.decode(value, type=Relevance).relevance_score


def _sides(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    named = [pair for pair in SIDES if fields.get(pair[0]) and fields.get(pair[1])]
    return named[0] if len(named) == 1 else None


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _pairs(first: Any, others: Sequence[Any]) -> tuple[bytes, ...]:
    return tuple(encoded((first, other)) for other in others)


def _top_n(fields: Mapping[str, Any]) -> int | None:
    """0: all. vLLM takes `5.0` and `"5"`, too. ``None``: it is no count, and the engine says so."""
    given = fields.get(TOP_N)
    if given is None:
        return 0
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10:
        given = int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else None
