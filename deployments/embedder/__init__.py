"""Text encoders: the contract, its implementations, and how one is opened by name.

| backend | runs | when to use it |
|---|---|---|
| ``torch`` | the sentence-transformers model itself | a GPU; a CPU with bfloat16 instructions |
| ``onnx`` | the same model as an ONNX graph | any other CPU: a short text takes half of torch's time |
"""

from deployments.embedder.base import Encoded, EncoderSpec, TextEncoder
from deployments.embedder.batches import Batches
from deployments.embedder.passes import Passes
from deployments.embedder.recent import RecentEmbeddings
from deployments.embedder.registry import open_configured, open_encoder

__all__ = [
    "Batches",
    "Encoded",
    "EncoderSpec",
    "Passes",
    "RecentEmbeddings",
    "TextEncoder",
    "open_configured",
    "open_encoder",
]
