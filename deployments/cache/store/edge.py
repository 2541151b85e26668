"""The embedded store: Qdrant in this process, on a local folder (``qdrant-edge-py``).

Qdrant's write-ahead log locks the folder while it is open, so only one process can use it. Each embedder has
its own folder, so vectors of two models are never compared.

Qdrant Edge builds a vector index only in ``optimize()``, which takes minutes for a cache's volume, holds the
GIL, and must be repeated after entries were added. So there is no index: in a partition of more than about a
thousand entries, a sketch of the vectors (``edge_sketch.py``) selects those that Qdrant compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import qdrant_edge as qe

from deployments.cache.store.base import Evicted, Match, StoreError
from deployments.cache.store.disk_floor import DiskFloor, FreeBytes, free_bytes
from deployments.cache.store.edge_kept_sketch import KeptSketch
from deployments.cache.store.edge_mending import Mending
from deployments.cache.store.payload import (
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
    matches,
    matches_of,
    note_of,
    payload_of,
)
from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume

logger = logging.getLogger(__name__)

T = TypeVar("T")

ONLY_US = 0o700
"""Mode of a store's folder: it holds tenants' questions and answers."""

BATCH = 1000

SKETCH_FROM = 1000
"""Partition size (entries) from which on the sketch is faster than Qdrant alone."""


class EdgeStore:
    """A :class:`~deployments.cache.store.base.CacheStore` on one shard. Qdrant's calls block, so they run one
    after the other on a dedicated thread."""

    def __init__(self, shard: Shard, path: Path, thread: ThreadPoolExecutor, disk: DiskFloor) -> None:
        self._shard = shard
        self._path = path
        self._thread = thread
        self._disk = disk
        self._is_open = True
        self._mending: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        folder: str,
        dimension: int,
        embedder: str,
        sketch_from: int = SKETCH_FROM,
        *,
        min_free_bytes: int = 0,
        free: FreeBytes = free_bytes,
    ) -> EdgeStore:
        """Open or create the shard for ``embedder`` under ``folder``. After a crash, or if there is no sketch
        yet, one is built in the background; until then searches compare whole partitions. The store leaves
        ``min_free_bytes`` of the disk free, as measured by ``free``.

        Raises:
            StoreFull: less than that is free; nothing was touched.
            StoreError: the folder is locked by another process, unreadable or damaged.
        """
        path = _path(folder, embedder, dimension)
        disk = DiskFloor(path, min_free_bytes, free)
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache-store")
        try:
            shard = await _run(thread, path, partial(_open, path, dimension, sketch_from, disk))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        store = cls(shard, path, thread, disk)
        if not shard.is_sketched:
            store._mending = asyncio.get_running_loop().create_task(store._mend())
        return store

    @property
    def location(self) -> str:
        return str(self._path)

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        return await self._call(partial(self._shard.get, entry_id))

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        return await self._call(partial(self._shard.nearest, partition, vector, now, oldest, limit))

    async def put(self, entry: CacheEntry) -> None:
        await self._call(partial(self._shard.put, entry), adds=True)

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        await self._call(partial(self._shard.annotate, entry_id, annotation), adds=True)

    async def read_note(self) -> str | None:
        return await self._call(self._shard.read_note)

    async def write_note(self, note: str) -> None:
        await self._call(partial(self._shard.write_note, note), adds=True)

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        return await self._call(partial(self._shard.select, selection, limit))

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        return await self._call(partial(self._shard.page, after, limit))

    async def delete(self, selection: Selection) -> int:
        return await self._call(partial(self._shard.delete, _filter(selection)))

    async def delete_expired(self, now: float) -> int:
        expired = qe.Filter(must=[qe.FieldCondition("expires_at", range=qe.RangeFloat(lte=now))])
        return await self._call(partial(self._shard.delete, expired))

    async def evict(self, tenant: str, volume: Volume) -> Evicted:
        tally = EvictionTally(volume)
        gone = 1
        while gone and not tally.is_full:
            gone = await self._call(partial(self._shard.evict, tenant, tally))
        return tally.gone

    async def usage(self) -> dict[str, Volume]:
        held: dict[str, Volume] = {}
        after: Any = None
        while True:
            after = await self._call(partial(self._shard.add_volumes, held, after))
            if after is None:
                return held

    async def count(self) -> int:
        return await self._call(self._shard.count)

    @property
    def is_settled(self) -> bool:
        """Whether the sketch is complete and used for large partitions; after a crash see :meth:`settle`."""
        return self._shard.is_sketched

    async def settle(self) -> None:
        """Wait until the sketch is complete: at once, unless the store was just opened after a crash."""
        if self._mending is not None:
            await asyncio.wait([self._mending])

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._mending is not None:
            self._mending.cancel()
        try:
            await _run(self._thread, self._path, self._shard.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _mend(self) -> None:
        try:
            mending = await self._call(self._shard.mending)
            while not await self._call(partial(self._shard.mend, mending)):
                pass
        except StoreError as error:
            logger.warning("searches will be slow in large partitions: %s", error)

    async def _call(self, work: Callable[[], T], *, adds: bool = False) -> T:
        if not self._is_open:
            raise StoreError(f"cache store {self._path}: closed")

        def checked() -> T:
            self._disk.require(adds=adds)  # on the store's thread: right before the call
            return work()

        return await _run(self._thread, self._path, checked)


class Shard:
    """Qdrant's blocking calls, in the cache's terms. Not thread-safe; may raise any exception."""

    def __init__(self, engine: qe.EdgeShard, sketch: KeptSketch) -> None:
        self._engine = engine
        self._sketch = sketch
        self._notes = len(engine.retrieve([NOTE_ID], with_payload=False, with_vector=False))
        self.is_sketched = len(sketch) == self.count()
        """Whether the sketch has as many entries as Qdrant."""

    def get(self, entry_id: UUID) -> CacheEntry | None:
        records = self._engine.retrieve([entry_id], with_payload=True, with_vector=False)
        return entry_of(entry_id, records[0].payload) if records else None

    def nearest(self, partition: str, vector: bytes, now: float, oldest: float, limit: int) -> list[Match]:
        near = self._sketch.near(partition, vector, now, oldest, limit) if self.is_sketched else None
        if near is not None:
            return [
                match
                for match in self._nearest_of(near, vector, limit)
                if match.entry.partition == partition
                and match.entry.expires_at > now
                and match.entry.created_at >= oldest
            ]
        conditions: list[Any] = [
            _equals(TENANT_KEY, partition),
            qe.FieldCondition("expires_at", range=qe.RangeFloat(gt=now)),
            qe.FieldCondition("created_at", range=qe.RangeFloat(gte=oldest)),
        ]
        request = qe.SearchRequest(
            qe.Query.Nearest(floats(vector)), limit, filter=qe.Filter(must=conditions), with_payload=True
        )
        return matches_of(self._engine.search(request))

    def _nearest_of(self, ids: set[UUID], vector: bytes, limit: int) -> list[Match]:
        """Search by ids only and fetch the payloads afterwards: half the time of a search with conditions and
        payloads."""
        among = qe.Filter(must=[qe.HasIdCondition({*ids})])
        request = qe.SearchRequest(qe.Query.Nearest(floats(vector)), limit, filter=among)
        scores = {UUID(str(point.id)): point.score for point in self._engine.search(request)}
        records = self._engine.retrieve(list(scores), with_payload=True, with_vector=False)
        entries = {entry.entry_id: entry for entry in entries_of(records)}
        return matches((entries.get(entry_id), score) for entry_id, score in scores.items())

    def put(self, entry: CacheEntry) -> None:
        vector: Any = {} if entry.vector is None else floats(entry.vector)
        point = qe.Point(entry.entry_id, vector, payload_of(entry))
        # Write the sketch first: after a crash, a count mismatch with Qdrant reveals the lost entry.
        self._sketch.put(entry.entry_id, entry.partition, entry.created_at, entry.expires_at, entry.vector)
        self._engine.update(qe.UpdateOperation.upsert_points([point]))

    def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        # Select by a filter: with an unknown id Qdrant would raise an error.
        one = _filter(Selection(entry_id=entry_id))
        self._engine.update(qe.UpdateOperation.set_payload_by_filter(one, annotation_of(annotation)))

    def read_note(self) -> str | None:
        records = self._engine.retrieve([NOTE_ID], with_payload=True, with_vector=False)
        return note_of(records[0].payload) if records else None

    def write_note(self, note: str) -> None:
        self._engine.update(qe.UpdateOperation.upsert_points([qe.Point(NOTE_ID, {}, {NOTE: note})]))
        self._notes = 1

    def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        request = qe.ScrollRequest(limit=limit, filter=_filter(selection), with_payload=True)
        records, _ = self._engine.scroll(request)
        return entries_of(records)

    def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        request = qe.ScrollRequest(offset=after, limit=limit, with_payload=True)
        records, following = self._engine.scroll(request)
        return entries_of(records), None if following is None else UUID(str(following))

    def delete(self, condition: qe.Filter) -> int:
        doomed = list(self._ids(condition))
        if doomed:
            self._engine.update(qe.UpdateOperation.delete_points_by_filter(condition))
            self._sketch.drop(doomed)
        return len(doomed)

    def evict(self, tenant: str, tally: EvictionTally) -> int:
        """Evict from one page; returns how many entries were removed."""
        request = qe.ScrollRequest(
            limit=BATCH,
            filter=_filter(Selection(tenant=tenant)),
            with_payload=qe.PayloadSelector.Include(VOLUME_FIELDS),
            order_by=qe.OrderBy("value"),
        )
        records, _ = self._engine.scroll(request)
        doomed = tally.take(records)
        if doomed:
            self._engine.update(qe.UpdateOperation.delete_points(doomed))
            self._sketch.drop(UUID(str(one)) for one in doomed)
        return len(doomed)

    def add_volumes(self, held: dict[str, Volume], after: Any) -> Any:
        """Add one page, from the id ``after`` on, to ``held``; returns where the next page begins."""
        selector = qe.PayloadSelector.Include(VOLUME_FIELDS)
        records, following = self._engine.scroll(
            qe.ScrollRequest(offset=after, limit=BATCH, with_payload=selector)
        )
        add_volumes(held, (record.payload for record in records))
        return following

    def count(self) -> int:
        # Without a filter Qdrant's estimate is its own tally; an exact count walks all ids.
        return int(self._engine.count(qe.CountRequest(exact=False))) - self._notes

    def mending(self) -> Mending:
        return Mending(self._engine, self._sketch)

    def mend(self, mending: Mending) -> bool:
        """Do one step; returns whether the sketch is complete now."""
        self.is_sketched = mending.step()
        return self.is_sketched

    def close(self) -> None:
        self._sketch.close()
        try:
            self._engine.flush()
        finally:  # unflushed data is in Qdrant's write-ahead log; release the folder in any case
            self._engine.close()

    def _ids(self, condition: qe.Filter) -> Iterator[UUID]:
        after: Any = None
        while True:
            request = qe.ScrollRequest(offset=after, limit=BATCH, filter=condition, with_payload=False)
            records, after = self._engine.scroll(request)
            yield from (UUID(str(record.id)) for record in records)
            if after is None:
                return


def _path(folder: str, embedder: str, dimension: int) -> Path:
    return Path(folder).expanduser() / generation(embedder, dimension)


def _open(path: Path, dimension: int, sketch_from: int, disk: DiskFloor) -> Shard:
    disk.require(adds=True)
    if path.is_dir():
        with contextlib.suppress(PermissionError):  # the folder belongs to another user who gave us access
            path.chmod(ONLY_US)  # earlier versions created it with a wider mode
    if not path.exists():
        _make(path, dimension)
    engine = qe.EdgeShard.load(str(path))
    sketch = KeptSketch(path, dimension, sketch_from)  # after Qdrant: only the lock's holder may write
    try:
        return Shard(engine, sketch)
    except BaseException:
        sketch.close()
        raise


def _make(path: Path, dimension: int) -> None:
    """Create the shard under another name and rename it: if the process is killed here, no half-made shard is
    left at ``path``."""
    unfinished = path.with_name(f"{path.name}.new")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    # An existing parent folder keeps its mode: it may hold other things.
    path.parent.mkdir(mode=ONLY_US, parents=True, exist_ok=True)
    unfinished.mkdir(mode=ONLY_US)
    vectors = qe.EdgeVectorParams(size=dimension, distance=qe.Distance.Cosine)
    engine = qe.EdgeShard.create(str(unfinished), qe.EdgeConfig(vectors=vectors))
    for field, schema in _indexes().items():
        engine.update(qe.UpdateOperation.create_field_index(field, schema))
    engine.flush()
    engine.close()
    unfinished.rename(path)


async def _run(thread: ThreadPoolExecutor, path: Path, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, _translated, path, work)


def _translated(path: Path, work: Callable[[], T]) -> T:
    """Run a call and turn every error into a :class:`StoreError`. Qdrant Edge raises bare ``Exception``, and
    its panics derive only from ``BaseException``."""
    try:
        return work()
    except StoreError:
        raise
    except BaseException as error:  # on the store's thread, so never a cancellation or interrupt
        raise StoreError(f"cache store {path}: {error}") from error


def _indexes() -> dict[str, Any]:
    return {
        TENANT_KEY: qe.KeywordIndexParams(is_tenant=True),
        **dict.fromkeys(KEYWORDS, qe.PayloadSchemaType.Keyword),
        **dict.fromkeys(NUMBERS, qe.PayloadSchemaType.Float),
    }


def _filter(selection: Selection) -> qe.Filter:
    fields = {"tenant": selection.tenant, "model": selection.model, "tags": selection.tag}
    conditions: list[Any] = [_equals(name, value) for name, value in fields.items() if value is not None]
    if selection.entry_id is not None:
        conditions.append(qe.HasIdCondition({selection.entry_id}))
    return qe.Filter(must=conditions)


def _equals(field: str, value: str) -> qe.FieldCondition:
    return qe.FieldCondition(field, match=qe.MatchValue(value))
