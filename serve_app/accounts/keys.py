"""Keys as their owner keeps them: how they are made, changed, rotated and revoked. Secrets never come here,
only their hashes."""

from __future__ import annotations

from enum import Enum

import msgspec

from serve_app.request.auth import FormerSecret, KeyRecord

MAX_LABEL_CHARS = 200


class ManagedKey(msgspec.Struct, frozen=True, kw_only=True):
    """``record`` is what gateways know of it. ``version`` counts its changes, so that of two administrators
    who change it at once the second is told. Times are Unix seconds."""

    record: KeyRecord
    label: str = ""
    version: int = 1
    created_at: float
    changed_at: float
    revoked_at: float | None = None
    made_by: str = ""
    """The id of the key that made it; empty: the admin token."""


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
    """Of a change: ``conflict``: another one came first; ``full``: there is no room for one more key."""

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


def rotated(key: ManagedKey, salt: str, hashed: str, *, now: float, overlap_s: float) -> ManagedKey:
    """With a new secret; the last one works for ``overlap_s`` more, one before it no longer."""
    record = key.record
    former = FormerSecret(record.salt, record.hash, now + overlap_s) if overlap_s > 0 else None
    changed = msgspec.structs.replace(record, salt=salt, hash=hashed, former=former)
    return changed_to(key, changed, now=now)


def revoked(key: ManagedKey, *, now: float) -> ManagedKey:
    """It works nowhere any more, and stays to be looked up. Once revoked, it stays so."""
    if key.revoked_at is not None:
        return key
    ended = msgspec.structs.replace(key.record, former=None)
    return msgspec.structs.replace(changed_to(key, ended, now=now), revoked_at=now)


def changed_to(key: ManagedKey, record: KeyRecord, *, now: float) -> ManagedKey:
    return msgspec.structs.replace(key, record=record, version=key.version + 1, changed_at=now)
