"""The cache's shards as one gateway sees them: where each is, and whether it works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deployments.wire.direct_calls import DirectClient
from serve_app.breaker import Breaker
from serve_app.cache.shards import Shards
from serve_app.settings import CacheSettings
from serve_app.wire.calls import CACHE

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


@dataclass(frozen=True, slots=True)
class Shard:
    """``direct`` is for look-ups, which clients wait for; ``handle`` for all other calls."""

    number: int
    handle: DeploymentHandle[Any]
    direct: DirectClient
    breaker: Breaker


class CacheShards:
    """Made inside a running event loop; ``close`` ends it."""

    def __init__(self, handles: Sequence[DeploymentHandle[Any]], settings: CacheSettings) -> None:
        self.placement = Shards(len(handles))
        self.is_shared = settings.is_shared
        self._shards = [
            Shard(
                number,
                handle,
                DirectClient(handle, CACHE),
                Breaker(settings.breaker_failures, settings.breaker_cooldown_s),
            )
            for number, handle in enumerate(handles)
        ]

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)

    @property
    def stores(self) -> Sequence[Shard]:
        """Shards whose stores together hold every entry once."""
        return self._shards[:1] if self.is_shared else self._shards

    @property
    def breaker_is_open(self) -> bool:
        """The breaker of some shard is open."""
        return any(shard.breaker.is_open for shard in self._shards)

    def of(self, partition: str) -> Shard:
        """The shard that owns the partition."""
        return self._shards[self.placement.owner(partition)]

    async def close(self) -> None:
        for shard in self._shards:
            await shard.direct.close()
