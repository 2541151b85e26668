"""What crosses the boundary to the embedder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """``name`` identifies the weights: vectors of two names are never compared. ``max_tokens`` is the
    longest input that is read whole."""

    name: str
    dimension: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Embedding:
    """One text's unit vector (float32 bytes), and its length in tokens before any truncation."""

    vector: bytes
    tokens: int
    truncated: bool
