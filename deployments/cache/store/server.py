"""A store on a Qdrant server or cluster, over REST or gRPC (``qdrant-client``).

Each embedder and layout has its own collection. The client keeps no state except its connections: a server
that comes back is used again, and if it comes back empty, the collection is created again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from qdrant_client import AsyncQdrantClient, models

from deployments.cache.store.base import Evicted, Match
from deployments.cache.store.conditions import Condition, alive, expired, of_tenant, one, selected
from deployments.cache.store.payload import (
    BATCH,
    NOTE,
    VOLUME_FIELDS,
    EvictionTally,
    add_volumes,
    annotation_of,
    entries_of,
    floats,
    matches_of,
    note_id,
    note_of,
    only_entry,
    page_of,
    payload_of,
    vector_of,
)
from deployments.cache.store.server_client import api_key, connected
from deployments.cache.store.server_collection import Collection
from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume
from serve_app.cache.shards import ALONE, Place
from serve_app.settings.qdrant import QdrantSettings

OVERSAMPLING = 2.0
"""Candidates found with int8 vectors per requested result, before they are rescored with full vectors."""


class ServerStore:
    """A :class:`~deployments.cache.store.base.CacheStore` on one collection. It has this many methods
    because the contract has them."""

    def __init__(
        self, client: AsyncQdrantClient, collection: Collection, place: Place, *, quantize: bool
    ) -> None:
        """``place``: which of the shards that share the collection this is. ``quantize``: searches use the
        int8 vectors first."""
        self._note_id = str(note_id(place.shard))
        self._shards = place.of
        self._client = client
        self._collection = collection
        self._quantize = quantize
        self._notes = 0
        """The number of notes known to exist (read or written here): their points are not counted as
        entries."""

    @classmethod
    async def open(
        cls,
        settings: QdrantSettings,
        dimension: int,
        embedder: str,
        environment: Mapping[str, str] = os.environ,
        place: Place = ALONE,
    ) -> ServerStore:
        """Connect, and create the collection and its indexes if they are missing.

        Raises:
            StoreError: no server answers, it refuses the key, or the collection is not ours.
        """
        key = api_key(settings, environment)
        client = connected(settings, key)
        collection = Collection(client, settings, dimension, embedder, key)
        try:
            await collection.prepare()
        except BaseException:
            await collection.close()
            raise
        return cls(client, collection, place, quantize=settings.quantize)

    @property
    def location(self) -> str:
        return self._collection.location

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        records = await self._collection.call(self._client.retrieve, ids=[str(entry_id)], with_payload=True)
        return only_entry(entry_id, records)

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        answer = await self._collection.call(
            self._client.query_points,
            query=floats(vector),
            query_filter=filter_of(alive(partition, now, oldest)),
            search_params=_search_params() if self._quantize else None,
            limit=limit,
            with_payload=True,
        )
        return matches_of(answer.points)

    async def put(self, entry: CacheEntry) -> None:
        point = models.PointStruct(id=str(entry.entry_id), vector=vector_of(entry), payload=payload_of(entry))
        await self._collection.change(self._client.upsert, points=[point])

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        payload = annotation_of(annotation)
        await self._collection.change(
            self._client.set_payload, payload=payload, points=filter_of(one(entry_id))
        )

    async def read_note(self) -> str | None:
        notes = [str(note_id(shard)) for shard in range(self._shards)]
        records = await self._collection.call(self._client.retrieve, ids=notes, with_payload=True)
        self._notes = len(records)
        return note_of([record for record in records if str(record.id) == self._note_id])

    async def write_note(self, note: str) -> None:
        """Applications that share a collection share its notes: the last write wins."""
        point = models.PointStruct(id=self._note_id, vector={}, payload={NOTE: note})
        await self._collection.change(self._client.upsert, points=[point])
        self._notes = self._shards  # each shard writes its own note when it starts

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        condition = filter_of(selected(selection))
        records, _ = await self._collection.call(
            self._client.scroll, scroll_filter=condition, limit=limit, with_payload=True
        )
        return entries_of(records)

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        offset = None if after is None else str(after)
        return page_of(
            *await self._collection.call(self._client.scroll, offset=offset, limit=limit, with_payload=True)
        )

    async def delete(self, selection: Selection) -> int:
        return await self._delete(filter_of(selected(selection)))

    async def delete_expired(self, now: float) -> int:
        return await self._delete(filter_of(expired(now)))

    async def evict(self, tenant: str, volume: Volume) -> Evicted:
        tally = EvictionTally(volume)
        while not tally.is_full:
            records, _ = await self._collection.call(
                self._client.scroll,
                scroll_filter=filter_of(of_tenant(tenant)),
                order_by=models.OrderBy(key="value"),
                limit=BATCH,
                with_payload=VOLUME_FIELDS,
            )
            doomed = tally.take(records)
            if not doomed:
                break
            ids = models.PointIdsList(points=doomed)
            await self._collection.change(self._client.delete, points_selector=ids)
        return tally.gone

    async def usage(self) -> dict[str, Volume]:
        held: dict[str, Volume] = {}
        after: Any = None
        while True:
            records, after = await self._collection.call(
                self._client.scroll, offset=after, limit=BATCH, with_payload=VOLUME_FIELDS
            )
            add_volumes(held, (record.payload for record in records))
            if after is None:
                return held

    async def count(self) -> int:
        # Without a filter the estimate is the shards' own tally; an exact count walks all ids.
        found = int((await self._collection.call(self._client.count, exact=False)).count)
        return max(0, found - self._notes)

    async def close(self) -> None:
        await self._collection.close()

    async def _delete(self, condition: models.Filter) -> int:
        doomed = await self._collection.call(self._client.count, count_filter=condition, exact=True)
        # Delete even if nothing was counted: a write that this process cancelled may still reach the server.
        selector = models.FilterSelector(filter=condition)
        await self._collection.change(self._client.delete, points_selector=selector)
        return int(doomed.count)


def filter_of(condition: Condition) -> models.Filter:
    """The condition in the client's types."""
    must: list[Any] = [
        models.FieldCondition(key=field, match=models.MatchValue(value=value))
        for field, value in condition.equals
    ]
    must += [
        models.FieldCondition(key=field, range=models.Range(**{comparison: bound}))
        for field, comparison, bound in condition.bounds
    ]
    if condition.entry_id is not None:
        must.append(models.HasIdCondition(has_id=[str(condition.entry_id)]))
    return models.Filter(must=must)


def _search_params() -> models.SearchParams:
    return models.SearchParams(
        quantization=models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
    )
