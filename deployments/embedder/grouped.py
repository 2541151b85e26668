"""Encodes texts: tokenises each text once, then runs one forward pass per group of similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deployments.embedder.base import Encoded, Floats
from deployments.embedder.tokens import Ids, TextTokenizer, by_length

Forward = Callable[[Mapping[str, Ids]], Floats]
"""Maps padded inputs (:meth:`TextTokenizer.padded`) to unit vectors, float32 [texts, dimension]."""

CPU_WASTE = 0.1
"""On a CPU every padded token costs time: in a batch of 32 a token costs as much as in a single text."""
ALONE = -1.0
"""Each text in its own pass, for models whose rounding depends on the other texts of the pass."""
GPU_WASTE = 1.0
"""On a GPU the number of passes matters more than padding."""


def encode_groups(
    texts: Sequence[str], tokenizer: TextTokenizer, forward: Forward, dimension: int, waste: float
) -> Encoded:
    """Encode ``texts``. ``waste``: the share of padding that a group may have, see :func:`by_length`."""
    read = tokenizer.read(texts)
    vectors = np.empty((len(texts), dimension), np.float32)
    for group in by_length([len(text.ids) for text in read], waste):
        vectors[group] = forward(tokenizer.padded([read[position] for position in group]))
    return Encoded(vectors, tuple(text.total for text in read), tuple(text.unknown for text in read))
