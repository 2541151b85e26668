"""The embedded store: Qdrant's engine in this process, in a folder (``qdrant-edge-py``).

The folder is locked by Qdrant's write-ahead log while it is open: one process at a time. Each
embedder has a folder of its own, so that vectors of two models are never compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as qe

from deployments.store.base import Match, StoreError
from serve_app.cache.entry import CacheEntry, Selection
from serve_app.openai.answers import decode_answer, encode_answer

SCHEMA_VERSION = 1
"""Part of the folder's name: entries of another layout are left alone, never misread."""

BATCH = 1000


class EdgeStore:
    """A :class:`~deployments.store.base.CacheStore` on one ``EdgeShard``."""

    def __init__(self, shard: qe.EdgeShard, path: Path) -> None:
        self._shard = shard
        self._path = path

    @classmethod
    def open(cls, folder: str, dimension: int, embedder: str) -> EdgeStore:
        """Open or make the shard for ``embedder`` under ``folder``.

        Raises:
            StoreError: the folder is locked by another process, unreadable or damaged.
        """
        name = hashlib.sha256(f"{embedder}:{dimension}".encode()).hexdigest()[:12]
        path = Path(folder).expanduser() / f"v{SCHEMA_VERSION}-{name}"
        with _translated(path):
            if (path / "edge_config.json").exists():
                return cls(qe.EdgeShard.load(str(path)), path)
            path.mkdir(parents=True, exist_ok=True)
            vectors = qe.EdgeVectorParams(size=dimension, distance=qe.Distance.Cosine)
            shard = qe.EdgeShard.create(str(path), qe.EdgeConfig(vectors=vectors))
            for field, schema in _indexes().items():
                shard.update(qe.UpdateOperation.create_field_index(field, schema))
            return cls(shard, path)

    @property
    def location(self) -> str:
        return str(self._path)

    def get(self, entry_id: UUID) -> CacheEntry | None:
        with _translated(self._path):
            records = self._shard.retrieve([entry_id], with_payload=True, with_vector=False)
            return _entry(entry_id, records[0].payload) if records else None

    def nearest(self, partition: str, vector: bytes, now: float, oldest: float) -> Match | None:
        conditions: list[Any] = [
            _equals("partition", partition),
            qe.FieldCondition("expires_at", range=qe.RangeFloat(gt=now)),
            qe.FieldCondition("created_at", range=qe.RangeFloat(gte=oldest)),
        ]
        request = qe.SearchRequest(
            qe.Query.Nearest(_floats(vector)), 1, filter=qe.Filter(must=conditions), with_payload=True
        )
        with _translated(self._path):
            found = self._shard.search(request)
            if not found:
                return None
            return Match(_entry(found[0].id, found[0].payload), found[0].score)

    def put(self, entry: CacheEntry) -> None:
        vector: Any = {} if entry.vector is None else _floats(entry.vector)
        point = qe.Point(entry.entry_id, vector, _payload(entry))
        with _translated(self._path):
            self._shard.update(qe.UpdateOperation.upsert_points([point]))

    def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        request = qe.ScrollRequest(limit=limit, filter=_filter(selection), with_payload=True)
        with _translated(self._path):
            records, _ = self._shard.scroll(request)
            return [_entry(record.id, record.payload) for record in records]

    def delete(self, selection: Selection) -> int:
        return self._delete(_filter(selection))

    def delete_expired(self, now: float) -> int:
        return self._delete(qe.Filter(must=[qe.FieldCondition("expires_at", range=qe.RangeFloat(lte=now))]))

    def delete_oldest(self, count: int) -> None:
        with _translated(self._path):
            while count > 0:
                request = qe.ScrollRequest(limit=min(count, BATCH), order_by=qe.OrderBy("created_at"))
                records, _ = self._shard.scroll(request)
                if not records:
                    return
                self._shard.update(qe.UpdateOperation.delete_points([record.id for record in records]))
                count -= len(records)

    def count(self) -> int:
        with _translated(self._path):
            return int(self._shard.count(qe.CountRequest(exact=True)))

    def close(self) -> None:
        with _translated(self._path):
            self._shard.flush()
            self._shard.close()

    def _delete(self, condition: qe.Filter) -> int:
        with _translated(self._path):
            doomed = int(self._shard.count(qe.CountRequest(exact=True, filter=condition)))
            if doomed:
                self._shard.update(qe.UpdateOperation.delete_points_by_filter(condition))
            return doomed


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """The engine raises bare ``Exception``; this is the one place that turns it into ours."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"cache store {path}: {error}") from error


def _indexes() -> dict[str, Any]:
    keyword, number = qe.PayloadSchemaType.Keyword, qe.PayloadSchemaType.Float
    return {
        # Every search filters by partition: Qdrant groups such points on disk.
        "partition": qe.KeywordIndexParams(is_tenant=True),
        "tenant": keyword,
        "model": keyword,
        "tags": keyword,
        "created_at": number,
        "expires_at": number,
    }


def _payload(entry: CacheEntry) -> dict[str, Any]:
    return {
        "tenant": entry.tenant,
        "model": entry.model,
        "partition": entry.partition,
        "text": entry.text,
        "answer": encode_answer(entry.answer).decode(),
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
        "tags": list(entry.tags),
    }


def _entry(entry_id: Any, payload: Any) -> CacheEntry:
    return CacheEntry(
        entry_id=UUID(str(entry_id)),
        tenant=payload["tenant"],
        model=payload["model"],
        partition=payload["partition"],
        text=payload["text"],
        answer=decode_answer(payload["answer"]),
        created_at=payload["created_at"],
        expires_at=payload["expires_at"],
        tags=tuple(payload["tags"]),
    )


def _filter(selection: Selection) -> qe.Filter:
    fields = {"tenant": selection.tenant, "model": selection.model, "tags": selection.tag}
    conditions: list[Any] = [_equals(name, value) for name, value in fields.items() if value is not None]
    if selection.entry_id is not None:
        conditions.append(qe.HasIdCondition({selection.entry_id}))
    return qe.Filter(must=conditions)


def _equals(field: str, value: str) -> qe.FieldCondition:
    return qe.FieldCondition(field, match=qe.MatchValue(value))


def _floats(vector: bytes) -> list[float]:
    floats: list[float] = np.frombuffer(vector, dtype=np.float32).tolist()
    return floats
