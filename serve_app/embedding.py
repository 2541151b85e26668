"""The values that the embedder exchanges with its callers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """``name`` identifies the weights: vectors of different names are never compared. ``max_tokens`` is the
    longest input that is read completely. ``source`` and ``dtype`` are the model's settings."""

    name: str
    dimension: int
    max_tokens: int
    source: str = ""
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Embedding:
    """One text's unit vector (float32 bytes), and its length in tokens before truncation.

    ``truncated``: the model read only the beginning. ``unknown``: tokens outside the model's vocabulary
    (emoji, a run of more than a hundred letters); texts that differ only in those have the same vector.
    """

    vector: bytes
    tokens: int
    truncated: bool
    unknown: int = 0

    @property
    def is_whole(self) -> bool:
        """The vector represents the complete text."""
        return not self.truncated and self.unknown == 0
