"""The contract of a text encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """Which encoder to open. ``source``: a hub id or a sentence-transformers folder; ``threads`` applies only
    to a CPU."""

    source: str
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Encoded:
    """The result of one encoding. ``vectors``: float32 [texts, dimension], each of length 1. ``tokens``: each
    text's length before truncation, special tokens included. ``unknown``: how many of a text's tokens, after
    truncation, are the tokenizer's unknown token."""

    vectors: Floats
    tokens: tuple[int, ...]
    unknown: tuple[int, ...]


class TextEncoder(Protocol):
    """Encodes texts as unit vectors. Calls block; only one thread may use an encoder at a time.

    A text longer than ``max_tokens`` is truncated: its vector represents only its beginning, and its count in
    ``Encoded.tokens`` exceeds ``max_tokens``. Lone surrogates, which are not valid Unicode, are replaced by
    U+FFFD.
    """

    @property
    def name(self) -> str:
        """Identifies the weights and their precision: vectors of different names are never compared."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    @property
    def max_tokens(self) -> int:
        """The longest text that is encoded without truncation, in tokens including the special ones."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The vectors of ``texts``, in order; empty if ``texts`` is empty."""
