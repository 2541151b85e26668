"""The newest decisions that changed a fleet, kept to answer why."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

KEPT = 20
"""Per model. All of them are read and written at each change, so they stay few."""


class ScalingChange(msgspec.Struct, frozen=True):
    """``at``: Unix seconds. ``before`` and ``after``: replicas that should exist. ``needed``: what the load
    asked for, before bounds and hysteresis. ``reason``: a name of ``Reason``, or of a later version's."""

    at: float
    before: int
    after: int
    needed: int
    reason: str
    wake: int = 0
    sleep: int = 0


def with_change(changes: Sequence[ScalingChange], new: ScalingChange) -> list[ScalingChange]:
    """The newest ones, the oldest first. A decision that Serve has not carried out yet is made again and
    again; it is kept once, with its first time."""
    if changes and msgspec.structs.replace(changes[-1], at=new.at) == new:
        return list(changes)
    return [*changes, new][-KEPT:]


def encoded(changes: Sequence[ScalingChange]) -> bytes:
    return msgspec.json.encode(changes)


def decoded(data: bytes | None) -> list[ScalingChange]:
    """Empty where nothing is kept, or in a form of another version."""
    try:
        return msgspec.json.decode(data, type=list[ScalingChange]) if data else []
    except msgspec.DecodeError:
        return []
