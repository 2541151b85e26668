"""The cosine of each pair's embeddings, from the encoder that serves traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from cache_lab.pairs import LabelledPair
from deployments.embedder import open_configured
from serve_app.cache.normal import load_normaliser
from serve_app.settings import EmbedderSettings

EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
"""The encoder whose verifier is shipped."""

SHIPPED_DTYPE: Literal["int8"] = "int8"
"""The precision of the encoder in the shipped configs."""

BATCH = 32

NOT_LOOKED_UP = -1.0


def embedder_settings(
    source: str = EMBEDDER, dtype: Literal["float32", "int8"] = SHIPPED_DTYPE
) -> EmbedderSettings:
    """An embedder on CPUs; without arguments that of the shipped configs."""
    return EmbedderSettings(id="embedder", source=source, dtype=dtype)


def similarities(pairs: Sequence[LabelledPair], settings: EmbedderSettings) -> list[float]:
    """One cosine for each pair, of the texts' normal forms; -1 where a text is longer than the embedder
    reads or holds tokens that it does not know: such a text is looked up by its exact words only.

    Raises:
        SettingsError: the encoder cannot run here.
    """
    encoder, normal = open_configured(settings), load_normaliser()
    # By length: what is encoded together is padded to the longest.
    texts = sorted(
        {text for pair in pairs for text in (pair.query, pair.candidate)}, key=lambda t: (len(t), t)
    )
    vectors: dict[str, Any] = {}
    for begin in range(0, len(texts), BATCH):
        batch = texts[begin : begin + BATCH]
        found = encoder.encode([normal(text) for text in batch])
        for text, vector, tokens, unknown in zip(
            batch, found.vectors, found.tokens, found.unknown, strict=True
        ):
            vectors[text] = vector if tokens <= encoder.max_tokens and not unknown else None
    return [_cosine(vectors[pair.query], vectors[pair.candidate]) for pair in pairs]


def _cosine(one: Any, two: Any) -> float:
    return NOT_LOOKED_UP if one is None or two is None else float(one @ two)
