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
    """What to open. ``source``: a hub id or a sentence-transformers folder; ``threads`` is for a CPU."""

    source: str
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Encoded:
    """``vectors``: float32 [texts, dimension], each of length 1. ``tokens``: each text's length before any
    truncation, special tokens included. ``unknown``: how many of those that were read are the tokenizer's
    unknown token."""

    vectors: Floats
    tokens: tuple[int, ...]
    unknown: tuple[int, ...]


class TextEncoder(Protocol):
    """Texts to unit vectors. Calls block; one thread uses an encoder at a time.

    A text longer than ``max_tokens`` is cut: its vector stands for its beginning alone, and its count in
    ``Encoded.tokens`` is larger than ``max_tokens``. Text that is not Unicode (lone surrogates) is read with
    U+FFFD in their place.
    """

    @property
    def name(self) -> str:
        """Identifies the weights and their precision: vectors of two names are never compared."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    @property
    def max_tokens(self) -> int:
        """The longest text, in tokens with the special ones, that is read whole."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The vectors of ``texts``, in order; none for none."""
