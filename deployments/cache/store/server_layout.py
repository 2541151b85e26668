"""The layout of a collection of a Qdrant server: name, vectors, indexes."""

from __future__ import annotations

from typing import Any

from qdrant_client import models

from deployments.cache.store.payload import KEYWORDS, NUMBERS, TENANT_KEY, generation
from serve_app.settings.qdrant import QdrantSettings

PARTITION_LINKS = 16
"""Edges per point in a partition's HNSW graph. There is no global graph: no search spans two partitions."""


class Layout:
    """The layout for the vectors of one embedder."""

    def __init__(self, settings: QdrantSettings, dimension: int, embedder: str) -> None:
        self._settings = settings
        self._dimension = dimension
        self._embedder = embedder
        self.name = f"{settings.collection}-{generation(embedder, dimension)}"

    def creation(self) -> dict[str, Any]:
        """The client's arguments that create the collection."""
        settings = self._settings
        return {
            "vectors_config": models.VectorParams(
                size=self._dimension, distance=models.Distance.COSINE, on_disk=settings.on_disk
            ),
            "hnsw_config": models.HnswConfigDiff(m=0, payload_m=PARTITION_LINKS),
            "quantization_config": _quantization() if settings.quantize else None,
            "shard_number": settings.shard_number,
            "replication_factor": settings.replication_factor,
            "metadata": {"embedder": self._embedder},
        }

    def objection(self, info: models.CollectionInfo) -> str | None:
        """Why an existing collection cannot be used; ``None`` if it can."""
        vectors = info.config.params.vectors
        is_ours = (
            isinstance(vectors, models.VectorParams)
            and vectors.size == self._dimension
            and vectors.distance == models.Distance.COSINE
        )
        if not is_ours:
            return f"it does not hold {self._dimension} dimensions compared by cosine"
        embedder = (info.config.metadata or {}).get("embedder", self._embedder)
        if embedder != self._embedder:
            return f"its vectors were made by {embedder}, not by {self._embedder}"
        return None


def index_of(field: str) -> Any:
    """The index of a payload field."""
    if field == TENANT_KEY:
        return models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    # HNSW graphs are built for partitions only.
    if field in KEYWORDS:
        return models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=False)
    assert field in NUMBERS
    return models.FloatIndexParams(type=models.FloatIndexType.FLOAT, enable_hnsw=False)


def _quantization() -> models.ScalarQuantization:
    scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
    return models.ScalarQuantization(scalar=scalar)
