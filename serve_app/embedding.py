"""What crosses the boundary to the embedder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """``name`` identifies the weights: vectors of two names are never compared. ``max_tokens`` is the
    longest input that is read whole. ``source`` and ``dtype`` are what the settings say of the
    model."""

    name: str
    dimension: int
    max_tokens: int
    source: str = ""
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Embedding:
    """One text's unit vector (float32 bytes), and its length in tokens before any truncation.

    ``truncated``: the model read only the beginning. ``unknown``: tokens that the model has no word for
    (emoji, a run of more than a hundred letters); texts that differ in nothing else have the same vector.
    """

    vector: bytes
    tokens: int
    truncated: bool
    unknown: int = 0

    @property
    def is_whole(self) -> bool:
        """The vector stands for all of the text."""
        return not self.truncated and self.unknown == 0
