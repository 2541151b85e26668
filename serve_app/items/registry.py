"""The shape of each path whose answer is a list of items."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.items.cohere import CohereShape
from serve_app.items.lists import ListShape
from serve_app.items.pairs import RerankShape, ScoreShape
from serve_app.items.shape import Shape
from serve_app.items.whole import WholeShape

SHAPES: Mapping[str, Shape] = {
    "/v1/embeddings": ListShape("embeddings", "embd"),
    "/pooling": ListShape("pooling", "pooling"),
    "/classify": ListShape("classify", "classify"),
    "/v1/score": ScoreShape(),
    "/v1/rerank": RerankShape(),
    "/v2/embed": CohereShape(),
    "/tokenize": WholeShape("tokenize", "prompt"),
    "/detokenize": WholeShape("detokenize", "tokens"),
}
"""Shapes by the path's own name (:func:`serve_app.settings.paths.own_name`)."""
