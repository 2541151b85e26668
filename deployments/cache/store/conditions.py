"""Conditions that select entries, as values; each store translates them to its client's filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from deployments.cache.store.payload import TENANT_KEY
from serve_app.cache.entry import Selection

Comparison = Literal["gt", "gte", "lte"]
"""Comparisons named as in Qdrant: greater than, greater or equal, less or equal."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition whose parts must all hold: payload fields' values, payload fields' bounds, the id."""

    equals: tuple[tuple[str, str], ...] = ()
    bounds: tuple[tuple[str, Comparison, float], ...] = ()
    entry_id: UUID | None = None


def selected(selection: Selection) -> Condition:
    """The entries that an administrator selected."""
    fields = (("tenant", selection.tenant), ("model", selection.model), ("tags", selection.tag))
    equals = tuple((name, value) for name, value in fields if value is not None)
    return Condition(equals, entry_id=selection.entry_id)


def one(entry_id: UUID) -> Condition:
    """The entry with this id, if there is one. A change by an unknown id is an error in Qdrant; a change by a
    filter that matches nothing is not."""
    return Condition(entry_id=entry_id)


def of_tenant(tenant: str) -> Condition:
    """All entries of a tenant."""
    return Condition((("tenant", tenant),))


def alive(partition: str, now: float, oldest: float) -> Condition:
    """The partition's entries that expire after ``now`` and were made at ``oldest`` or later (Unix
    seconds)."""
    return Condition(((TENANT_KEY, partition),), (("expires_at", "gt", now), ("created_at", "gte", oldest)))


def expired(now: float) -> Condition:
    """The entries that expired at ``now`` (Unix seconds) or before."""
    return Condition(bounds=(("expires_at", "lte", now),))
