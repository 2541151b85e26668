"""The cosine of each pair's embeddings, as the cache would have it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cache_mixes import LabelledPair

from serve_app.model_store import ModelStore, default_cache_dir

EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
"""The one that a verifier ships for."""


def similarities(pairs: Sequence[LabelledPair], embedder: str) -> list[float]:
    """One cosine for each pair; ``embedder`` is a hub id or a folder."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(ModelStore(default_cache_dir()).resolve(embedder), device="cpu")
    texts = sorted({text for pair in pairs for text in (pair.query, pair.candidate)})
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=sys.stderr.isatty())
    at = dict(zip(texts, vectors, strict=True))
    return [float(at[pair.query] @ at[pair.candidate]) for pair in pairs]
