"""The address of a replica's private listener."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_SOCKET_PATH = 107
"""Bytes of a Unix socket's path (``sun_path`` holds 108, the last is 0)."""


@dataclass(frozen=True, slots=True)
class PrivateAddress:
    """``url`` works from every node. ``socket`` is the path of a Unix socket of the same listener, for
    callers on its node, empty if it has none; its name is random, so on another node no such file exists.
    Both ends prove that they know ``secret``, which is never sent."""

    url: str
    secret: str = field(repr=False)
    socket: str = ""
