"""Texts to vectors: the contract, its implementations, and how one is opened by name.

| backend | runs | where it is the right one |
|---|---|---|
| ``torch`` | the sentence-transformers model itself | a GPU; a CPU with bfloat16 instructions |
| ``onnx`` | the same model as an ONNX graph | any other CPU: a short text costs half of torch's time |
"""

from deployments.embedder.base import Encoded, EncoderSpec, TextEncoder
from deployments.embedder.batches import Batches
from deployments.embedder.recent import RecentEmbeddings
from deployments.embedder.registry import open_configured, open_encoder

__all__ = [
    "Batches",
    "Encoded",
    "EncoderSpec",
    "RecentEmbeddings",
    "TextEncoder",
    "open_configured",
    "open_encoder",
]
