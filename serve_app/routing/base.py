"""The contract of a routing policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from serve_app.fleet import Member


class RoutingPolicy(Protocol):
    """Orders the candidates of one request, best first. Must not change them and must not block."""

    def __call__(self, candidates: Sequence[Member]) -> list[Member]: ...
