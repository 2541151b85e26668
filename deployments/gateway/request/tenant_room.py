"""Room that tenants share, of which each may have only a part: one tenant's work cannot take all of it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


class TenantRoom:
    """``most`` places for all tenants together (``None``: no bound), ``per_tenant`` of them for one.
    ``part_of``: how much of the latter is this gateway's now."""

    def __init__(self, most: int | None, per_tenant: int, part_of: Callable[[int], int] = int) -> None:
        self._most = sys.maxsize if most is None else most
        self._all_of_tenant = per_tenant
        self._part_of = part_of
        self._taken: Counter[str] = Counter()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def _per_tenant(self) -> int:
        return self._part_of(self._all_of_tenant)

    def free(self, tenant: str) -> int:
        """The places that the tenant may take now."""
        return max(0, min(self._per_tenant - self._taken[tenant], self._most - self._taken.total()))

    def is_tenants_own(self, tenant: str) -> bool:
        """Whether it is the tenant's own part that is full."""
        return self._taken[tenant] >= self._per_tenant

    def take(self, tenant: str, wanted: int = 1) -> Places:
        """Takes as many of the ``wanted`` places as are free, which may be none."""
        size = min(wanted, self.free(tenant))
        self._taken[tenant] += size
        return Places(self, tenant, size)

    async def wait(self, tenant: str, wanted: int, timeout_s: float) -> Places:
        """The same, once there is one. None within ``timeout_s``: none."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.free(tenant):
                    await self._change()
        except TimeoutError:
            pass
        return self.take(tenant, wanted)

    async def _change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            self._waiting.remove(waiter)

    def give_back(self, places: Places) -> None:
        self._taken[places.tenant] -= places.size
        if not self._taken[places.tenant]:
            del self._taken[places.tenant]
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class Places:
    """What a tenant has taken, until the block ends."""

    room: TenantRoom
    tenant: str
    size: int

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None:
        self.room.give_back(self)
