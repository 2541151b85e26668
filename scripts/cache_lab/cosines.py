"""The cosine of each pair's embeddings, from the encoder that serves traffic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cache_lab.pairs import LabelledPair
from deployments.embedder import open_configured
from serve_app.settings import EmbedderSettings

EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
"""The encoder whose verifier is shipped."""

SHIPPED_DTYPE = "int8"
"""The precision of the encoder in the shipped configs."""

BATCH = 32


def embedder_settings(source: str = EMBEDDER) -> EmbedderSettings:
    """The defaults of an embedder on CPUs."""
    return EmbedderSettings(id="embedder", source=source)


def similarities(pairs: Sequence[LabelledPair], settings: EmbedderSettings) -> list[float]:
    """One cosine for each pair.

    Raises:
        SettingsError: the encoder cannot run here.
    """
    encoder = open_configured(settings)
    # Sorted by length, because texts that are encoded together are padded to the longest.
    texts = sorted({text for pair in pairs for text in (pair.query, pair.candidate)}, key=len)
    batches = [texts[begin : begin + BATCH] for begin in range(0, len(texts), BATCH)]
    vectors = np.concatenate([encoder.encode(batch).vectors for batch in batches])
    at = dict(zip(texts, vectors, strict=True))
    return [float(at[pair.query] @ at[pair.candidate]) for pair in pairs]
