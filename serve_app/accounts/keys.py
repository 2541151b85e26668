"""Keys as their owner keeps them: how they are made, changed, rotated and revoked. Secrets never come here,
only their hashes."""

from __future__ import annotations

from enum import Enum

import msgspec

from serve_app.request.auth import FormerSecret, KeyRecord


class ManagedKey(msgspec.Struct, frozen=True, kw_only=True):
    """``record`` is what gateways know of it. ``version`` counts its changes, so that the second of two
    administrators who change it at once gets an error. Times are Unix seconds."""

    record: KeyRecord
    label: str = ""
    version: int = 1
    created_at: float
    changed_at: float
    revoked_at: float | None = None
    made_by: str = ""
    """The id of the key that made it; ``subject:NAME``: who was signed in; empty: the admin token."""
    changed_by: str = ""
    """The id of the key that changed it last."""


class State(Enum):
    """``active`` also holds for a key that has expired."""

    ACTIVE = "active"
    REVOKED = "revoked"
    ANY = "any"


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys in order of their ids, from behind ``after``; ``None``: whatever it is."""

    tenant: str | None = None
    user: str | None = None
    state: State = State.ACTIVE
    after: str = ""
    limit: int = 100


class KeyPage(msgspec.Struct, frozen=True):
    keys: tuple[ManagedKey, ...]
    has_more: bool


class Outcome(Enum):
    """Result of a change. ``conflict``: another change came first; ``full``: there is no room for one more
    key."""

    KEPT = "kept"
    CONFLICT = "conflict"
    ABSENT = "absent"
    FULL = "full"


class Kept(msgspec.Struct, frozen=True):
    """``key``: as it is kept now."""

    outcome: Outcome
    key: ManagedKey | None = None


class AccountsError(Exception):
    """The owner cannot read or write; the message says why and holds no secret."""


def rotated(key: ManagedKey, salt: str, hashed: str, *, by: str, now: float, overlap_s: float) -> ManagedKey:
    """The key with a new secret; the last one works for ``overlap_s`` more, one before it no longer."""
    record = key.record
    former = FormerSecret(record.salt, record.hash, now + overlap_s) if overlap_s > 0 else None
    changed = msgspec.structs.replace(record, salt=salt, hash=hashed, former=former)
    return changed_to(key, changed, by=by, now=now)


def revoked(key: ManagedKey, *, by: str, now: float) -> ManagedKey:
    """It works nowhere any more, and stays to be looked up. Once revoked, it stays so."""
    if key.revoked_at is not None:
        return key
    ended = msgspec.structs.replace(key.record, former=None)
    return msgspec.structs.replace(changed_to(key, ended, by=by, now=now), revoked_at=now)


def changed_to(key: ManagedKey, record: KeyRecord, *, by: str, now: float) -> ManagedKey:
    """``by``: the id of the administrator's key; empty: the admin token."""
    version = key.version + 1
    return msgspec.structs.replace(key, record=record, version=version, changed_at=now, changed_by=by)
