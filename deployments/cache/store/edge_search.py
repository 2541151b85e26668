"""The search for near entries in an embedded store, and the conditions as Qdrant Edge's filters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import qdrant_edge as qe

from deployments.cache.store.base import Match
from deployments.cache.store.conditions import Condition, alive
from deployments.cache.store.edge_kept_sketch import KeptSketch
from deployments.cache.store.edge_mending import Mending
from deployments.cache.store.payload import entries_of, floats, matches, matches_of


class NearSearch:
    """Searches with the sketch if it is complete and the partition is large, else with Qdrant alone."""

    def __init__(self, points: qe.EdgeShard, sketch: KeptSketch, is_sketched: bool) -> None:
        """``is_sketched``: the sketch is complete."""
        self._points = points
        self._sketch = sketch
        self.is_sketched = is_sketched

    def nearest(self, partition: str, vector: bytes, now: float, oldest: float, limit: int) -> list[Match]:
        """See ``CacheStore.nearest``."""
        near = self._sketch.near(partition, vector, now, oldest, limit) if self.is_sketched else None
        if near is not None:
            return [
                match
                for match in self._nearest_of(near, vector, limit)
                if match.entry.partition == partition
                and match.entry.expires_at > now
                and match.entry.created_at >= oldest
            ]
        request = qe.SearchRequest(
            qe.Query.Nearest(floats(vector)),
            limit,
            filter=filter_of(alive(partition, now, oldest)),
            with_payload=True,
        )
        return matches_of(self._points.search(request))

    def _nearest_of(self, ids: set[UUID], vector: bytes, limit: int) -> list[Match]:
        """Search by ids only and fetch the payloads afterwards. This takes half the time of a search with
        conditions and payloads."""
        among = qe.Filter(must=[qe.HasIdCondition({*ids})])
        request = qe.SearchRequest(qe.Query.Nearest(floats(vector)), limit, filter=among)
        scores = {UUID(str(point.id)): point.score for point in self._points.search(request)}
        records = self._points.retrieve(list(scores), with_payload=True, with_vector=False)
        entries = {entry.entry_id: entry for entry in entries_of(records)}
        return matches((entries.get(entry_id), score) for entry_id, score in scores.items())

    def mending(self) -> Mending:
        """A repair of the sketch, to be done by ``mend``."""
        return Mending(self._points, self._sketch)

    def mend(self, mending: Mending) -> bool:
        """Do one step of a repair; returns whether the sketch is complete now."""
        self.is_sketched = mending.step()
        return self.is_sketched


def filter_of(condition: Condition) -> qe.Filter:
    """The condition in Qdrant Edge's types."""
    must: list[Any] = [
        qe.FieldCondition(field, match=qe.MatchValue(value)) for field, value in condition.equals
    ]
    must += [
        qe.FieldCondition(field, range=qe.RangeFloat(**{comparison: bound}))
        for field, comparison, bound in condition.bounds
    ]
    if condition.entry_id is not None:
        must.append(qe.HasIdCondition({condition.entry_id}))
    return qe.Filter(must=must)
