"""Where a replica's private listener is reached."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PrivateAddress:
    """``url`` is reached from every node. ``socket`` is the path of a unix socket of the same listener, for
    callers on its node (a name that nobody can guess, so on another node there is no such file); empty if it
    has none. Both ends prove that they know ``secret``, which is sent to nobody."""

    url: str
    secret: str = field(repr=False)
    socket: str = ""
