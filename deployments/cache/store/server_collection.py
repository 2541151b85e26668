"""One collection of a Qdrant server: how it is created and checked, and how its calls fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from qdrant_client import AsyncQdrantClient, models

from deployments.cache.store.base import StoreError
from deployments.cache.store.payload import FIELDS, KEYWORDS, NUMBERS, TENANT_KEY, generation
from deployments.cache.store.server_client import is_missing, reason_of
from serve_app.settings.qdrant import QdrantSettings

T = TypeVar("T")

PARTITION_LINKS = 16
"""Edges per point in a partition's HNSW graph. There is no global graph: no search spans two partitions."""

MAX_REASON = 200
"""Most characters of a reason in a message: servers' errors may be long."""


class Collection:
    """Runs calls on the collection of one embedder, each within ``timeout_s``. A collection that is found to
    be missing is created again by the next call."""

    def __init__(
        self, client: AsyncQdrantClient, settings: QdrantSettings, dimension: int, embedder: str, key: str
    ) -> None:
        self._client = client
        self._settings = settings
        self._dimension = dimension
        self._embedder = embedder
        self._key = key
        self._name = f"{settings.collection}-{generation(embedder, dimension)}"
        self._is_open = True
        self._is_prepared = False
        self._preparing = asyncio.Lock()

    @property
    def location(self) -> str:
        return f"{self._settings.url}/collections/{self._name}"

    async def call(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        """Call a method of the client on this collection.

        Raises:
            StoreError: it failed or took too long, or the collection is closed or not ours.
        """
        if not self._is_open:
            raise self._error("closed")
        if not self._is_prepared:
            await self._prepare_again()
        return await self._ask(method, **arguments)

    async def change(self, method: Callable[..., Awaitable[models.UpdateResult]], **arguments: Any) -> None:
        """Call a method that changes points, and wait until later calls see the change.

        Raises:
            StoreError: as ``call``, or the change is not completed.
        """
        result = await self.call(method, wait=True, **arguments)
        if result.status != models.UpdateStatus.COMPLETED:
            raise self._error(f"the change is only {result.status}")

    async def prepare(self) -> None:
        """Create the collection and its indexes if they are missing.

        Raises:
            StoreError: a call failed, or the collection is not ours.
        """
        async with self._preparing:
            if self._is_prepared:
                return
            if not await self._ask(self._client.collection_exists):
                await self._create()
            info = await self._ask(self._client.get_collection)
            self._check(info)
            for field in FIELDS:
                if field not in info.payload_schema:
                    await self._ask(
                        self._client.create_payload_index,
                        field_name=field,
                        field_schema=_index(field),
                        wait=True,
                    )
            self._is_prepared = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._client.close()

    async def _prepare_again(self) -> None:
        """Prepare within one overall time-out: concurrent calls wait for each other here."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await self.prepare()
        except TimeoutError:
            raise self._error(f"not prepared within {self._settings.timeout_s:g} s") from None

    async def _create(self) -> None:
        settings = self._settings
        try:
            await self._ask(
                self._client.create_collection,
                vectors_config=models.VectorParams(
                    size=self._dimension, distance=models.Distance.COSINE, on_disk=settings.on_disk
                ),
                hnsw_config=models.HnswConfigDiff(m=0, payload_m=PARTITION_LINKS),
                quantization_config=_quantization() if settings.quantize else None,
                shard_number=settings.shard_number,
                replication_factor=settings.replication_factor,
                metadata={"embedder": self._embedder},
            )
        except StoreError:
            # Another application may have created it in the meantime.
            if not await self._ask(self._client.collection_exists):
                raise

    def _check(self, info: models.CollectionInfo) -> None:
        vectors = info.config.params.vectors
        is_ours = (
            isinstance(vectors, models.VectorParams)
            and vectors.size == self._dimension
            and vectors.distance == models.Distance.COSINE
        )
        if not is_ours:
            raise self._error(f"it does not hold {self._dimension} dimensions compared by cosine")
        embedder = (info.config.metadata or {}).get("embedder", self._embedder)
        if embedder != self._embedder:
            raise self._error(f"its vectors were made by {embedder}, not by {self._embedder}")

    async def _ask(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        """One call. Every client error becomes a :class:`StoreError` without its cause: the cause may hold
        entries' texts, which must not be logged."""
        limit = asyncio.timeout(self._settings.timeout_s)
        try:
            async with limit:
                return await method(collection_name=self._name, **arguments)
        except Exception as error:
            # gRPC may report the time-out's cancellation as an error of its own: CANCELLED.
            if isinstance(error, TimeoutError) or limit.expired():
                raise self._error(f"no answer within {self._settings.timeout_s:g} s") from None
            if is_missing(error):
                self._is_prepared = False
            raise self._error(reason_of(error)) from None

    def _error(self, reason: str) -> StoreError:
        shown = reason.replace(self._key, "***") if self._key else reason
        return StoreError(f"cache store {self.location}: {' '.join(shown.split())[:MAX_REASON]}")


def _index(field: str) -> Any:
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
