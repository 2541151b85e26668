"""Brings a sketch in line with what the engine holds, after a crash or where there was no sketch."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as qe

from deployments.cache.store.edge_kept_sketch import KeptSketch
from deployments.cache.store.payload import NOTE_ID, TENANT_KEY

PAGE = 100
"""Entries at a step. Where their vectors have to be read, a step takes some 10 ms."""

FIELDS = [TENANT_KEY, "created_at", "expires_at"]


class Mending:
    """Walks all ids in their order, a page at a step; other calls go between the steps. What they write or
    remove is in the sketch by their own doing."""

    def __init__(self, engine: qe.EdgeShard, sketch: KeptSketch) -> None:
        self._engine = engine
        self._sketch = sketch
        self._after: Any = None
        self._unseen = sketch.ids()

    def step(self) -> bool:
        """Returns whether that was the last one."""
        records, self._after = self._engine.scroll(
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
        for record in self._engine.retrieve(list(missing), with_payload=fields, with_vector=True):
            partition, *times = ((record.payload or {}).get(name) for name in FIELDS)
            created, expires = (float(time or 0.0) for time in times)
            self._sketch.put(_uuid(record.id), str(partition), created, expires, _vector(record.vector))

    def _drop(self, unseen: list[UUID]) -> None:
        """What was written during the walk, behind it, was not seen either; it is asked for by name."""
        for begin in range(0, len(unseen), PAGE):
            asked = unseen[begin : begin + PAGE]
            there = self._engine.retrieve(list(asked), with_payload=False, with_vector=False)
            self._sketch.drop(set(asked) - {_uuid(record.id) for record in there})


def _uuid(point_id: Any) -> UUID:
    return point_id if isinstance(point_id, UUID) else UUID(str(point_id))


def _vector(vector: Any) -> bytes | None:
    """Of the default vector, which stands alone or under an empty name; ``None`` if there is none."""
    values = vector.get("") if isinstance(vector, dict) else vector
    return np.asarray(values, np.float32).tobytes() if values else None
