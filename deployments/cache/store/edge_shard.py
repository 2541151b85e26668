"""One Qdrant shard in a local folder: how it is opened, and its blocking calls in the cache's terms."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import qdrant_edge as qe

from deployments.cache.store.conditions import Condition, of_tenant, one
from deployments.cache.store.edge_kept_sketch import KeptSketch
from deployments.cache.store.edge_search import NearSearch, filter_of
from deployments.cache.store.payload import (
    BATCH,
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
    note_of,
    only_entry,
    page_of,
    payload_of,
    vector_of,
)
from serve_app.cache.entry import Annotation, CacheEntry
from serve_app.cache.eviction import Volume

ONLY_US = 0o700
"""Mode of a store's folder: it holds tenants' questions and answers."""


class Shard:
    """Qdrant's blocking calls. Not thread-safe; may raise any exception. It has this many methods because
    the contract (``CacheStore``) has them; the search is in ``search``."""

    def __init__(self, points: qe.EdgeShard, sketch: KeptSketch) -> None:
        self._points = points
        self._sketch = sketch
        self._notes = len(points.retrieve([NOTE_ID], with_payload=False, with_vector=False))
        self.search = NearSearch(points, sketch, is_sketched=len(sketch) == self.count())

    def get(self, entry_id: UUID) -> CacheEntry | None:
        return only_entry(entry_id, self._points.retrieve([entry_id], with_payload=True, with_vector=False))

    def put(self, entry: CacheEntry) -> None:
        point = qe.Point(entry.entry_id, vector_of(entry), payload_of(entry))
        # Write the sketch first: after a crash, a count mismatch with Qdrant reveals the lost entry.
        self._sketch.put(entry.entry_id, entry.partition, entry.created_at, entry.expires_at, entry.vector)
        self._points.update(qe.UpdateOperation.upsert_points([point]))

    def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        payload = annotation_of(annotation)
        self._points.update(qe.UpdateOperation.set_payload_by_filter(filter_of(one(entry_id)), payload))

    def read_note(self) -> str | None:
        return note_of(self._points.retrieve([NOTE_ID], with_payload=True, with_vector=False))

    def write_note(self, note: str) -> None:
        self._points.update(qe.UpdateOperation.upsert_points([qe.Point(NOTE_ID, {}, {NOTE: note})]))
        self._notes = 1

    def select(self, condition: Condition, limit: int) -> list[CacheEntry]:
        request = qe.ScrollRequest(limit=limit, filter=filter_of(condition), with_payload=True)
        records, _ = self._points.scroll(request)
        return entries_of(records)

    def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        return page_of(*self._points.scroll(qe.ScrollRequest(offset=after, limit=limit, with_payload=True)))

    def delete(self, condition: Condition) -> int:
        doomed = list(self._ids(filter_of(condition)))
        if doomed:
            self._points.update(qe.UpdateOperation.delete_points_by_filter(filter_of(condition)))
            self._sketch.drop(doomed)
        return len(doomed)

    def evict(self, tenant: str, tally: EvictionTally) -> int:
        """Evict from one page; returns how many entries were removed."""
        request = qe.ScrollRequest(
            limit=BATCH,
            filter=filter_of(of_tenant(tenant)),
            with_payload=qe.PayloadSelector.Include(VOLUME_FIELDS),
            order_by=qe.OrderBy("value"),
        )
        records, _ = self._points.scroll(request)
        doomed = tally.take(records)
        if doomed:
            self._points.update(qe.UpdateOperation.delete_points(doomed))
            self._sketch.drop(UUID(str(each)) for each in doomed)
        return len(doomed)

    def add_volumes(self, held: dict[str, Volume], after: Any) -> Any:
        """Add one page, from the id ``after`` on, to ``held``; returns where the next page begins."""
        fields = qe.PayloadSelector.Include(VOLUME_FIELDS)
        request = qe.ScrollRequest(offset=after, limit=BATCH, with_payload=fields)
        records, following = self._points.scroll(request)
        add_volumes(held, (record.payload for record in records))
        return following

    def count(self) -> int:
        # Without a filter Qdrant's estimate is its own tally; an exact count walks all ids.
        return int(self._points.count(qe.CountRequest(exact=False))) - self._notes

    def close(self) -> None:
        self._sketch.close()
        try:
            self._points.flush()
        finally:  # unflushed data is in Qdrant's write-ahead log; release the folder in any case
            self._points.close()

    def _ids(self, condition: qe.Filter) -> Iterator[UUID]:
        after: Any = None
        while True:
            request = qe.ScrollRequest(offset=after, limit=BATCH, filter=condition, with_payload=False)
            records, after = self._points.scroll(request)
            yield from (UUID(str(record.id)) for record in records)
            if after is None:
                return


def open_shard(path: Path, dimension: int, sketch_from: int) -> Shard:
    """Open the shard in this folder, or create it. Partitions of ``sketch_from`` entries or more are searched
    with the sketch. May raise any exception."""
    if path.is_dir():
        with contextlib.suppress(PermissionError):  # the folder belongs to another user who gave us access
            path.chmod(ONLY_US)  # earlier versions created it with a wider mode
    if not path.exists():
        _create(path, dimension)
    points = qe.EdgeShard.load(str(path))
    sketch = KeptSketch(path, dimension, sketch_from)  # after Qdrant: only the lock's holder may write
    try:
        return Shard(points, sketch)
    except BaseException:
        sketch.close()
        raise


def _create(path: Path, dimension: int) -> None:
    """Create the shard under another name and rename it, so that no half-made shard is left at ``path`` if
    the process is killed meanwhile."""
    unfinished = path.with_name(f"{path.name}.new")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    # An existing parent folder keeps its mode: it may hold other things.
    path.parent.mkdir(mode=ONLY_US, parents=True, exist_ok=True)
    unfinished.mkdir(mode=ONLY_US)
    vectors = qe.EdgeVectorParams(size=dimension, distance=qe.Distance.Cosine)
    points = qe.EdgeShard.create(str(unfinished), qe.EdgeConfig(vectors=vectors))
    for field, schema in _indexes().items():
        points.update(qe.UpdateOperation.create_field_index(field, schema))
    points.flush()
    points.close()
    unfinished.rename(path)


def _indexes() -> dict[str, Any]:
    return {
        TENANT_KEY: qe.KeywordIndexParams(is_tenant=True),
        **dict.fromkeys(KEYWORDS, qe.PayloadSchemaType.Keyword),
        **dict.fromkeys(NUMBERS, qe.PayloadSchemaType.Float),
    }
