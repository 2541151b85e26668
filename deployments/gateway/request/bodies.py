"""Request bodies while they arrive: a slow one must not keep other requests out."""

from __future__ import annotations

import asyncio
from collections import Counter

from deployments.gateway.request.exchange import Exchange
from serve_app.errors import BodyTimeout, BodyTooLarge, OverCapacity
from serve_app.request.body_pace import BodyPace
from serve_app.settings import LimitSettings

ADMINISTRATORS = "/administrators"
"""The tenant of bodies sent to ``/admin``; no real tenant has a slash in its name."""

DRAIN_LIMIT = 32
"""A refused body is read (and dropped) up to this many times the limit, so that the client gets to
read the answer instead of a reset connection."""


class Bodies:
    """Reads them, each within its time, and counts those of each tenant that are arriving."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._pace = BodyPace(limits.body_timeout_s, limits.min_body_bytes_per_s)
        self._arriving: Counter[str] = Counter()

    async def read(self, exchange: Exchange, tenant: str) -> bytes:
        """The whole body. From then on the request counts among those that the gateway answers.

        Raises:
            BodyTimeout: it did not arrive in time, or too slowly.
            BodyTooLarge: it is longer than ``limits.max_body_bytes``, or says so in its `Content-Length`:
                then nothing of it is waited for, and no `100 Continue` is sent.
            ClientGone: the client left while sending it.
            OverCapacity: too many bodies of the tenant are arriving, or the gateway is full.
        """
        if exchange.announced_bytes > self._limits.max_body_bytes:
            raise BodyTooLarge(self._limits.max_body_bytes)
        if self._arriving[tenant] >= self._limits.max_bodies_per_tenant:
            raise OverCapacity(
                f"{self._limits.max_bodies_per_tenant} request bodies of this tenant are arriving "
                "(limits.max_bodies_per_tenant).",
                1,
            )
        self._arriving[tenant] += 1
        try:
            body = await self._read(exchange)
        finally:
            self._arriving[tenant] -= 1
            if not self._arriving[tenant]:
                del self._arriving[tenant]
        if exchange.body_read is not None:
            exchange.body_read(exchange)
        return body

    async def _read(self, exchange: Exchange) -> bytes:
        loop, limit = asyncio.get_running_loop(), self._limits.max_body_bytes
        began = loop.time()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout_at(began + self._pace.due_s(0)) as due:
                more = True
                while more and size <= DRAIN_LIMIT * limit:
                    part, more = await exchange.body_part()
                    size += len(part)
                    if size <= limit:
                        parts.append(part)
                    if more:
                        due.reschedule(began + self._pace.due_s(size))
        except TimeoutError:
            raise BodyTimeout(loop.time() - began, size) from None
        if size > limit:
            raise BodyTooLarge(limit)
        return b"".join(parts)
