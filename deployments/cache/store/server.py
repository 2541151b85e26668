"""A store on a Qdrant server or cluster, over REST or gRPC (``qdrant-client``).

Each embedder and layout has its own collection. The client keeps no state except its connections: a server
that comes back is used again, and if it comes back empty, the collection is created again.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import grpc
import httpx
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from deployments.cache.store.base import Evicted, Match, StoreError
from deployments.cache.store.payload import (
    FIELDS,
    KEYWORDS,
    NOTE,
    NOTE_ID,
    NUMBERS,
    TENANT_KEY,
    VOLUME_FIELDS,
    EvictionTally,
    add_volumes,
    annotation_of,
    entries_of,
    entry_of,
    floats,
    generation,
    matches_of,
    note_of,
    payload_of,
)
from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume
from serve_app.settings.qdrant import QdrantSettings

T = TypeVar("T")

BATCH = 1000
MAX_CONNECTIONS = 64
KEEP_ALIVE_S = 30.0
MAX_RECONNECT_MS = 2000
"""By default gRPC waits up to two minutes before it reconnects, and refuses all calls until then."""

PARTITION_LINKS = 16
"""Edges per point in a partition's HNSW graph. There is no global graph: no search spans two partitions."""

OVERSAMPLING = 2.0
"""Candidates found with int8 vectors per requested result, before they are rescored with full vectors."""

MAX_REASON = 200
"""Most characters of a reason in a message: servers' errors may be long."""

NOT_FOUND = 404


class ServerStore:
    """A ``CacheStore`` on one Qdrant collection. Every call to the server ends within ``timeout_s``."""

    def __init__(
        self, client: AsyncQdrantClient, settings: QdrantSettings, dimension: int, embedder: str, key: str
    ) -> None:
        self._client = client
        self._settings = settings
        self._dimension = dimension
        self._embedder = embedder
        self._key = key
        self._collection = f"{settings.collection}-{generation(embedder, dimension)}"
        self._is_open = True
        self._notes = 0
        """1 once the note's point is known to exist (read or written here): it is no entry to count."""
        self._is_prepared = False
        self._preparing = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        settings: QdrantSettings,
        dimension: int,
        embedder: str,
        environment: Mapping[str, str] = os.environ,
    ) -> ServerStore:
        """Connect, and create the collection and its indexes if they are missing.

        Raises:
            StoreError: no server answers, it refuses the key, or the collection is not ours.
        """
        key = _key(settings, environment)
        store = cls(_client(settings, key), settings, dimension, embedder, key)
        try:
            await store._prepare()
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def location(self) -> str:
        return f"{self._settings.url}/collections/{self._collection}"

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        records = await self._call(self._client.retrieve, ids=[str(entry_id)], with_payload=True)
        return entry_of(entry_id, records[0].payload) if records else None

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        conditions: list[Any] = [
            _equals(TENANT_KEY, partition),
            models.FieldCondition(key="expires_at", range=models.Range(gt=now)),
            models.FieldCondition(key="created_at", range=models.Range(gte=oldest)),
        ]
        answer = await self._call(
            self._client.query_points,
            query=floats(vector),
            query_filter=models.Filter(must=conditions),
            search_params=_search_params() if self._settings.quantize else None,
            limit=limit,
            with_payload=True,
        )
        return matches_of(answer.points)

    async def put(self, entry: CacheEntry) -> None:
        vector: Any = {} if entry.vector is None else floats(entry.vector)
        point = models.PointStruct(id=str(entry.entry_id), vector=vector, payload=payload_of(entry))
        self._check_done(await self._call(self._client.upsert, points=[point], wait=True))

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        # Select by a filter: with an unknown id Qdrant would raise an error.
        one, payload = _filter(Selection(entry_id=entry_id)), annotation_of(annotation)
        self._check_done(await self._call(self._client.set_payload, payload=payload, points=one, wait=True))

    async def read_note(self) -> str | None:
        records = await self._call(self._client.retrieve, ids=[str(NOTE_ID)], with_payload=True)
        self._notes = len(records)
        return note_of(records[0].payload) if records else None

    async def write_note(self, note: str) -> None:
        """Applications that share a collection share its note: the last write wins."""
        point = models.PointStruct(id=str(NOTE_ID), vector={}, payload={NOTE: note})
        self._check_done(await self._call(self._client.upsert, points=[point], wait=True))
        self._notes = 1

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        records, _ = await self._call(
            self._client.scroll, scroll_filter=_filter(selection), limit=limit, with_payload=True
        )
        return entries_of(records)

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        offset = None if after is None else str(after)
        records, following = await self._call(
            self._client.scroll, offset=offset, limit=limit, with_payload=True
        )
        return entries_of(records), None if following is None else UUID(str(following))

    async def delete(self, selection: Selection) -> int:
        return await self._delete(_filter(selection))

    async def delete_expired(self, now: float) -> int:
        expired = models.FieldCondition(key="expires_at", range=models.Range(lte=now))
        return await self._delete(models.Filter(must=[expired]))

    async def evict(self, tenant: str, volume: Volume) -> Evicted:
        tally = EvictionTally(volume)
        while not tally.is_full:
            records, _ = await self._call(
                self._client.scroll,
                scroll_filter=_filter(Selection(tenant=tenant)),
                order_by=models.OrderBy(key="value"),
                limit=BATCH,
                with_payload=VOLUME_FIELDS,
            )
            doomed = tally.take(records)
            if not doomed:
                break
            ids = models.PointIdsList(points=doomed)
            self._check_done(await self._call(self._client.delete, points_selector=ids, wait=True))
        return tally.gone

    async def usage(self) -> dict[str, Volume]:
        held: dict[str, Volume] = {}
        after: Any = None
        while True:
            records, after = await self._call(
                self._client.scroll, offset=after, limit=BATCH, with_payload=VOLUME_FIELDS
            )
            add_volumes(held, (record.payload for record in records))
            if after is None:
                return held

    async def count(self) -> int:
        # Without a filter the estimate is the shards' own tally; an exact count walks all ids.
        found = int((await self._call(self._client.count, exact=False)).count)
        return max(0, found - self._notes)

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._client.close()

    async def _delete(self, condition: models.Filter) -> int:
        doomed = (await self._call(self._client.count, count_filter=condition, exact=True)).count
        # Delete even if nothing was counted: a write that this process cancelled may still reach the server.
        selector = models.FilterSelector(filter=condition)
        self._check_done(await self._call(self._client.delete, points_selector=selector, wait=True))
        return int(doomed)

    def _check_done(self, result: models.UpdateResult) -> None:
        """Raise if the change is not completed: later calls might not see it."""
        if result.status != models.UpdateStatus.COMPLETED:
            raise self._error(f"the change is only {result.status}")

    async def _prepare(self) -> None:
        async with self._preparing:
            if self._is_prepared:
                return
            if not await self._ask(self._client.collection_exists):
                await self._create()
            info = await self._ask(self._client.get_collection)
            self._check_collection(info)
            for field in FIELDS:
                if field not in info.payload_schema:
                    await self._ask(
                        self._client.create_payload_index,
                        field_name=field,
                        field_schema=_index(field),
                        wait=True,
                    )
            self._is_prepared = True

    async def _prepare_again(self) -> None:
        """Prepare within one overall time-out: concurrent calls wait for each other here."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await self._prepare()
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

    def _check_collection(self, info: models.CollectionInfo) -> None:
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

    async def _call(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        if not self._is_open:
            raise self._error("closed")
        if not self._is_prepared:
            await self._prepare_again()
        return await self._ask(method, **arguments)

    async def _ask(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        """One call. Every client error becomes a :class:`StoreError` without its cause: the cause may hold
        entries' texts, which must not be logged."""
        limit = asyncio.timeout(self._settings.timeout_s)
        try:
            async with limit:
                return await method(collection_name=self._collection, **arguments)
        except Exception as error:
            # gRPC may report the time-out's cancellation as an error of its own: CANCELLED.
            if isinstance(error, TimeoutError) or limit.expired():
                raise self._error(f"no answer within {self._settings.timeout_s:g} s") from None
            if _is_missing(error):
                self._is_prepared = False
            raise self._error(_reason(error)) from None

    def _error(self, reason: str) -> StoreError:
        shown = reason.replace(self._key, "***") if self._key else reason
        return StoreError(f"cache store {self.location}: {' '.join(shown.split())[:MAX_REASON]}")


def _key(settings: QdrantSettings, environment: Mapping[str, str]) -> str:
    if settings.key_env is None:
        return ""
    key = environment.get(settings.key_env, "").strip()  # files end with a newline
    if not key:
        raise StoreError(
            f"cache store {settings.url}: the variable {settings.key_env} (`key_env`) is not set "
            "where the cache runs"
        )
    if not (key.isascii() and key.isprintable()):
        raise StoreError(
            f"cache store {settings.url}: the variable {settings.key_env} (`key_env`) holds what no header "
            "may hold"
        )
    return key


def _client(settings: QdrantSettings, key: str) -> AsyncQdrantClient:
    return AsyncQdrantClient(
        url=settings.url,
        api_key=key or None,
        prefer_grpc=settings.prefer_grpc,
        grpc_port=settings.grpc_port,
        grpc_options={"grpc.max_reconnect_backoff_ms": MAX_RECONNECT_MS},
        timeout=math.ceil(settings.timeout_s),
        # The check runs on a thread that outlives the store, and only warns.
        check_compatibility=False,
        # By default the client opens a new connection for every call to a server on this machine.
        limits=httpx.Limits(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=KEEP_ALIVE_S,
        ),
    )


def _is_missing(error: Exception) -> bool:
    """Whether the server says that the collection does not exist."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() is grpc.StatusCode.NOT_FOUND
    return isinstance(error, UnexpectedResponse) and error.status_code == NOT_FOUND


def _reason(error: Exception) -> str:
    """What went wrong. Of the server's response only its own error message is included."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details() or ''}"
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {error.reason_phrase} {_server_message(error)}"
    if isinstance(error, ResourceExhaustedResponse):
        return f"429 {error}"
    source = error.source if isinstance(error, ResponseHandlingException) else error
    if isinstance(source, httpx.HTTPError):
        return f"{type(source).__name__} {source}"
    return f"an answer that is not Qdrant's ({type(source).__name__})"


def _server_message(error: UnexpectedResponse) -> str:
    try:
        return str(error.structured()["status"]["error"])
    except (KeyError, TypeError, ValueError):
        return ""


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


def _search_params() -> models.SearchParams:
    return models.SearchParams(
        quantization=models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
    )


def _filter(selection: Selection) -> models.Filter:
    fields = {"tenant": selection.tenant, "model": selection.model, "tags": selection.tag}
    conditions: list[Any] = [_equals(name, value) for name, value in fields.items() if value is not None]
    if selection.entry_id is not None:
        conditions.append(models.HasIdCondition(has_id=[str(selection.entry_id)]))
    return models.Filter(must=conditions)


def _equals(field: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))
