"""Repairs a sketch from Qdrant's entries, after a crash or if there was no sketch file."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as qe

from deployments.cache.store.edge_kept_sketch import KeptSketch
from deployments.cache.store.payload import NOTE_ID, TENANT_KEY

PAGE = 100
"""Entries per step. A step that has to read vectors takes about 10 ms."""

FIELDS = [TENANT_KEY, "created_at", "expires_at"]


class Mending:
    """A repair that walks all ids in order, one page per step. Other calls run between the steps, and update
    the sketch themselves when they write or remove entries."""

    def __init__(self, points: qe.EdgeShard, sketch: KeptSketch) -> None:
        self._points = points
        self._sketch = sketch
        self._after: Any = None
        self._unseen = sketch.ids()

    def step(self) -> bool:
        """Repair one page; returns whether it was the last one."""
        records, self._after = self._points.scroll(
            qe.ScrollRequest(offset=self._after, limit=PAGE, with_payload=False)
        )
        ids = {_uuid(record.id) for record in records} - {NOTE_ID}
        self._unseen -= ids
        self._add([one for one in ids if one not in self._sketch])
        if self._after is None:
            self._drop(list(self._unseen))
        return self._after is None

    def _add(self, missing: list[UUID]) -> None:
        if not missing:
            return
        fields = qe.PayloadSelector.Include(FIELDS)
        for record in self._points.retrieve(list(missing), with_payload=fields, with_vector=True):
            partition, *times = ((record.payload or {}).get(name) for name in FIELDS)
            created, expires = (float(time or 0.0) for time in times)
            self._sketch.put(_uuid(record.id), str(partition), created, expires, _vector(record.vector))

    def _drop(self, unseen: list[UUID]) -> None:
        """Drop sketch entries that the walk did not see and Qdrant does not have. Entries written behind the
        walk were not seen either, so Qdrant is asked for each id."""
        for begin in range(0, len(unseen), PAGE):
            asked = unseen[begin : begin + PAGE]
            there = self._points.retrieve(list(asked), with_payload=False, with_vector=False)
            self._sketch.drop(set(asked) - {_uuid(record.id) for record in there})


def _uuid(point_id: Any) -> UUID:
    return point_id if isinstance(point_id, UUID) else UUID(str(point_id))


def _vector(vector: Any) -> bytes | None:
    """The default vector, given alone or under an empty name, as float32 bytes; ``None`` if there is none."""
    values = vector.get("") if isinstance(vector, dict) else vector
    return np.asarray(values, np.float32).tobytes() if values else None
