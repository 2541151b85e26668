"""Request bodies while they arrive: a slow one must not keep other requests out."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Protocol

from deployments.gateway.request.exchange import Exchange
from serve_app.errors import BodyTimeout, BodyTooLarge, OverCapacity
from serve_app.request.body_pace import BodyPace
from serve_app.settings import LimitSettings

ADMINISTRATORS = "/administrators"
"""The tenant of bodies sent to ``/admin``; no real tenant has a slash in its name."""

DRAIN_LIMIT = 32
"""A refused body is read (and dropped) up to this many times the limit, so that the client gets to
read the answer instead of a reset connection."""

DRAIN_BYTES = 32 << 20
"""But no more than this beyond the limit."""

LONG_BYTES = 1 << 20


async def let_others(size: int) -> None:
    """Between the steps of reading a conversation of ``size`` bytes: each may take a tenth of a second if it
    is long, in which no token of any client moves."""
    if size > LONG_BYTES:
        await asyncio.sleep(0)


class Taker(Protocol):
    """Takes a body as it arrives."""

    @property
    def held(self) -> int:
        """Bytes that it holds in memory."""
        ...

    async def take(self, part: bytes) -> None: ...


class _Whole:
    """Keeps the body."""

    def __init__(self) -> None:
        self.held = 0
        self._parts: list[bytes] = []

    async def take(self, part: bytes) -> None:
        self.held += len(part)
        self._parts.append(part)

    def joined(self) -> bytes:
        return b"".join(self._parts)


class Bodies:
    """Reads them, each within its time. Counts those of each tenant that are arriving, and the bytes that it
    holds until their requests end, with what they refer to (``Exchange.load``)."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._pace = BodyPace(limits.body_timeout_s, limits.min_body_bytes_per_s)
        self._arriving: Counter[str] = Counter()
        self._held: Counter[str] = Counter()

    async def read(self, exchange: Exchange, tenant: str, *, is_conversation: bool = False) -> bytes:
        """The whole body. From then on the request counts among those that the gateway answers.
        ``is_conversation``: it may be as long as ``limits.max_conversation_bytes``.

        Raises:
            BodyTimeout: it did not arrive in time, or too slowly.
            BodyTooLarge: it is longer than its limit, or says so in its `Content-Length`: then nothing of it
                is waited for, and no `100 Continue` is sent.
            ClientGone: the client left while sending it.
            OverCapacity: too many bodies of the tenant are arriving, too many of its bytes are held, or the
                gateway is full.
        """
        if exchange.body is not None:  # its client was told that it is accepted
            self._holding(exchange, tenant).add(len(exchange.body) + exchange.loaded_bytes)
            return exchange.body
        setting = "max_conversation_bytes" if is_conversation else "max_body_bytes"
        whole = _Whole()
        await self._receive(exchange, tenant, setting, whole, exchange.announced_bytes)
        return whole.joined()

    async def read_into(self, exchange: Exchange, tenant: str, taker: Taker) -> None:
        """The same of an upload, which may be as long as ``limits.max_upload_bytes`` and is not held here."""
        await self._receive(exchange, tenant, "max_upload_bytes", taker, 0)

    async def _receive(
        self, exchange: Exchange, tenant: str, setting: str, taker: Taker, announced: int
    ) -> None:
        limit: int = getattr(self._limits, setting)
        if exchange.announced_bytes > limit:
            raise BodyTooLarge(limit, setting)
        self._refuse_to_hold(tenant, announced)
        if self._arriving[tenant] >= self._limits.max_bodies_per_tenant:
            raise OverCapacity(
                f"{self._limits.max_bodies_per_tenant} request bodies of this tenant are arriving "
                "(limits.max_bodies_per_tenant).",
                1,
            )
        self._arriving[tenant] += 1
        try:
            size = await self._read(exchange, tenant, limit, taker)
        finally:
            self._arriving[tenant] -= 1
            if not self._arriving[tenant]:
                del self._arriving[tenant]
        if size > limit:
            raise BodyTooLarge(limit, setting)
        if exchange.body_read is not None:
            exchange.body_read(exchange)

    async def _read(self, exchange: Exchange, tenant: str, limit: int, taker: Taker) -> int:
        """Its size."""
        loop = asyncio.get_running_loop()
        held = self._holding(exchange, tenant)
        began = loop.time()
        size = 0
        try:
            async with asyncio.timeout_at(began + self._pace.due_s(0)) as due:
                more = True
                while more and size <= min(DRAIN_LIMIT * limit, limit + DRAIN_BYTES):
                    part, more = await exchange.body_part()
                    size += len(part)
                    if size <= limit:
                        before = taker.held
                        await taker.take(part)
                        self._refuse_to_hold(tenant, taker.held - before)
                        held.add(taker.held - before)
                    if more:
                        due.reschedule(began + self._pace.due_s(size))
        except TimeoutError:
            raise BodyTimeout(loop.time() - began, size) from None
        return size

    def _holding(self, exchange: Exchange, tenant: str) -> _HeldBytes:
        held = _HeldBytes(self._held, tenant)
        exchange.body_done = held.release
        exchange.hold = partial(self._hold, held, tenant)
        return held

    def _hold(self, held: _HeldBytes, tenant: str, size: int) -> None:
        self._refuse_to_hold(tenant, size)
        held.add(size)

    def _refuse_to_hold(self, tenant: str, size: int) -> None:
        most = self._limits.max_held_bytes_per_tenant
        if self._held[tenant] + size > most:
            raise OverCapacity(
                f"The bodies of this tenant's requests, with what they refer to, hold {most} bytes "
                "(limits.max_held_bytes_per_tenant).",
                1,
            )


class _HeldBytes:
    """The bytes of one request among those of its tenant, until the request ends."""

    def __init__(self, held: Counter[str], tenant: str) -> None:
        self._held = held
        self._tenant = tenant
        self._size = 0

    def add(self, size: int) -> None:
        self._size += size
        self._held[self._tenant] += size

    def release(self) -> None:
        self._held[self._tenant] -= self._size
        self._size = 0
        if not self._held[self._tenant]:
            del self._held[self._tenant]
