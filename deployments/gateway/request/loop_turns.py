"""Tenants take turns in the event loop when many of their requests arrive at once."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

BEGUN_IN_A_TURN = 4
"""Requests of one tenant that begin in one turn of the loop: one to two milliseconds of its time. Between two
turns the loop reads what else has arrived."""


class LoopTurns:
    """A request of one tenant does not wait until hundreds of another one, which arrived in the same moment,
    have been read, looked up and placed or refused. All are begun without a pause, each tenant's in their
    order. For one event loop."""

    def __init__(self, most: int = BEGUN_IN_A_TURN) -> None:
        self._most = most
        self._begun: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._has_next = False

    async def wait(self, tenant: str) -> None:
        """Returns when the request may begin; at once, if few of the tenant's began in this turn."""
        loop = asyncio.get_running_loop()
        if not self._has_next:
            self._has_next = True
            loop.call_soon(self._next, loop)
        if self._begun[tenant] < self._most and tenant not in self._waiting:
            self._begun[tenant] += 1
            return
        begins: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(begins)
        await begins

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun.clear()
        for tenant, waiting in list(self._waiting.items()):
            while waiting and self._begun[tenant] < self._most:
                begins = waiting.popleft()
                if not begins.done():  # its client is still there
                    begins.set_result(None)
                    self._begun[tenant] += 1
            if not waiting:
                del self._waiting[tenant]
        self._has_next = bool(self._begun)
        if self._has_next:
            loop.call_soon(self._next, loop)
