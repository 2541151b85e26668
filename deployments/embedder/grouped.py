"""One encoding: tokens once, then a forward pass for each group of similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deployments.embedder.base import Encoded, Floats
from deployments.embedder.tokens import Ids, TextTokenizer, by_length

Forward = Callable[[Mapping[str, Ids]], Floats]
"""Padded inputs (:meth:`TextTokenizer.padded`) to unit vectors, float32 [texts, dimension]."""

CPU_WASTE = 0.1
"""A CPU pays for every padded token: a token of 32 texts together costs it as much as one of one text."""
ALONE = -1.0
"""Each text by itself: where what a text is rounded to depends on the others of its pass."""
GPU_WASTE = 1.0
"""A GPU pays for the number of passes first."""


def encode_groups(
    texts: Sequence[str], tokenizer: TextTokenizer, forward: Forward, dimension: int, waste: float
) -> Encoded:
    """``waste``: the share of padding that a group may have, see :func:`by_length`."""
    read = tokenizer.read(texts)
    vectors = np.empty((len(texts), dimension), np.float32)
    for group in by_length([len(text.ids) for text in read], waste):
        vectors[group] = forward(tokenizer.padded([read[position] for position in group]))
    return Encoded(vectors, tuple(text.total for text in read), tuple(text.unknown for text in read))
