"""What streams have said so far, kept outside their gateway: a client whose gateway was killed asks again at
another one, and its answer goes on from there.

Gateways tell once a second what was added. Only the tokens are told; an engine that goes on with them writes
their text again. What is not certain to be an answer's whole beginning is not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

KEPT_S = 60.0
"""How long beginnings outlast the last word of their gateway: clients ask again within seconds."""

MOST_BYTES = 1 << 26
"""Of all beginnings in one process, some six bytes a token; what has not grown for longest leaves first."""

LONGEST_BYTES = 1 << 20
"""Of one beginning."""

BETWEEN = b";"
"""Between two pieces; within one there is a comma between two tokens."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A stream: ``key`` names its request, and all that are identical, and holds its tenant's; ``start``: how
    many pieces were told before; ``pieces``: those since then, token ids in the pieces in which they came."""

    key: bytes
    start: int
    pieces: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """``ended``: what has no beginning any more, because it is whole or nobody waits for it."""

    gateway: str
    grown: tuple[Grown, ...] = ()
    ended: tuple[bytes, ...] = ()


@dataclass(slots=True)
class _Beginning:
    count: int = 0
    size: int = 0
    told: list[bytes] = field(default_factory=list)


class Beginnings:
    """Of one process. No clock: callers pass ``now`` (monotonic seconds)."""

    def __init__(self, most_bytes: int = MOST_BYTES, longest_bytes: int = LONGEST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._longest_bytes = longest_bytes
        self._kept: OrderedDict[tuple[str, bytes], _Beginning] = OrderedDict()  # the last that grew is last
        self._heard_at: dict[str, float] = {}
        self.size = 0
        """Bytes of all."""

    def __len__(self) -> int:
        return len(self._kept)

    def hear(self, told: Told, now: float) -> None:
        self.forget_the_silent(now)
        self._heard_at[told.gateway] = now
        for key in told.ended:
            self._remove((told.gateway, key))
        for each in told.grown:
            self._grow((told.gateway, each.key), each)
        while self.size > self._most_bytes:
            self._remove(next(iter(self._kept)))

    def take(self, key: bytes, gateway: str, now: float) -> bytes:
        """The beginning of the request at ``gateway``, once; empty: none is known."""
        self.forget_the_silent(now)
        known = self._remove((gateway, key))
        return BETWEEN.join(known.told) if known is not None else b""

    def forget_the_silent(self, now: float) -> None:
        """What gateways have told that are gone for long."""
        silent = {name for name, heard_at in self._heard_at.items() if now - heard_at >= KEPT_S}
        if silent:
            for name in [each for each in self._kept if each[0] in silent]:
                self._remove(name)
            for gateway in silent:
                del self._heard_at[gateway]

    def clear(self) -> None:
        """After a purge: a stream that grows on has no beginning here."""
        self._kept.clear()
        self.size = 0

    def _grow(self, name: tuple[str, bytes], grown: Grown) -> None:
        known = self._remove(name)
        if not grown.start:
            known = _Beginning()
        elif known is None or known.count != grown.start:
            return  # something between was not heard
        known.told.append(grown.pieces)
        known.count += grown.pieces.count(BETWEEN) + 1
        known.size += len(grown.pieces)
        if known.size <= self._longest_bytes:
            self._kept[name] = known
            self.size += known.size

    def _remove(self, name: tuple[str, bytes]) -> _Beginning | None:
        known = self._kept.pop(name, None)
        if known is not None:
            self.size -= known.size
        return known


def joined(pieces: Iterable[bytes]) -> bytes:
    """As they are told; each holds ids as in JSON."""
    return BETWEEN.join(pieces)


def pieces_of(told: bytes) -> list[list[int]]:
    """Raises: msgspec.DecodeError: it was not made by ``joined``."""
    if not told:
        return []
    return [msgspec.json.decode(b"[%b]" % piece, type=list[int]) for piece in told.split(BETWEEN)]
