"""This gateway's part in requests that several gateways share: it announces its own with its look-ups, lets
others join them, and joins theirs.

A request's key is that of the cache and so contains its tenant: no client joins another tenant's request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from uuid import UUID

import msgspec
from starlette.types import Receive, Scope, Send

from deployments.gateway.lookup.in_flight import InFlightKey, InFlightRequests, Reader
from deployments.gateway.lookup.memory import Memory
from deployments.gateway.lookup.shared_stream import SharedStream, StreamLost
from deployments.wire.http1 import BrokenConnection, Connection, NoConnection, Origin, request_bytes
from deployments.wire.listener import PrivateListener, read_body
from deployments.wire.pool import ConnectionPool
from serve_app.cache.entry import Hit
from serve_app.cache.shards import Shards
from serve_app.errors import BudgetEnded, PromptlyError, RateLimited
from serve_app.gateways.announced import MOST_ENDED, Announced, Ended
from serve_app.gateways.frames import Kind, begun, failed, frame
from serve_app.wire.private_address import PrivateAddress

JOIN = "/join"
CONNECT_TIMEOUT_S = 1.0
ACCEPT_TIMEOUT_S = 2.0
IDLE_CONNECTION_S = 60.0
READ_AHEAD = 1 << 18

WAITING_S = 1.0
"""Between two signs of life of an answer that says nothing."""

PENDING_S = 1.0
"""How long who joins waits for a request that was announced and has not begun: its own look-up is still
under way there."""

MOST_PENDING = 10_000
NAME_BYTES = 18
OK, REMEMBERED, NOT_HERE = 200, 203, 404

REMEMBERED_S = 1.0
"""How long others are still sent here for an answer that has ended and is remembered: longer than it takes
until the store has it. A look-up in between would miss, and an engine would be asked once more."""

logger = logging.getLogger("ray.serve")

AddressOf = Callable[[str], PrivateAddress | None]


class _Asked(msgspec.Struct, frozen=True):
    key: bytes
    priority: int


class Elsewhere:
    """Made inside a running event loop; ``close`` ends it. ``host``: the node's address.

    ``memory``: what answers here from then on.

    It is one class because announcing, joining and being joined go by the same tables of requests.
    """

    def __init__(
        self, in_flight: InFlightRequests, memory: Memory, host: str, ports: range, shards: Shards
    ) -> None:
        self.in_flight = in_flight
        self.memory = memory
        self._joined: set[bytes] = set()
        self._pending: dict[bytes, float] = {}
        self._shards = shards
        # For each shard of the cache the ends that were not sent to it yet, each with when to send it. The
        # key of a request that has ended does not say which shard knows it, so all get them.
        self._ended = [
            deque[tuple[float, Ended]](maxlen=MOST_ENDED * shards.count) for _ in range(shards.count)
        ]
        self._begun: dict[bytes, asyncio.Event] = {}
        self._listener = PrivateListener(self._answer, host, ports=ports)
        self._listener.start()
        self._connections = ConnectionPool(
            connect_timeout_s=CONNECT_TIMEOUT_S, idle_s=IDLE_CONNECTION_S, read_ahead=READ_AHEAD
        )
        self._gateway = ""
        self._address_of: AddressOf = _nowhere
        in_flight.watched(self._has_begun, self._has_ended)

    @property
    def address(self) -> PrivateAddress:
        return self._listener.address

    def introduce(self, gateway: str, address_of: AddressOf) -> None:
        """This gateway's name, and where the others are."""
        self._gateway, self._address_of = gateway, address_of

    async def close(self) -> None:
        self._connections.close()
        await self._listener.close(0)  # who reads here goes on alone

    # ---- announcing ----

    def announce(self, key: InFlightKey | None, partition: str) -> Announced | None:
        """What a look-up tells the cache; ``None``: the request may not be joined."""
        if key is None:
            return None
        name = name_of(key)
        now = time.monotonic()
        ended = self._to_tell(self._ended[self._shards.owner(partition)], now)
        if key not in self.in_flight:
            if len(self._pending) >= MOST_PENDING:
                self._pending = {each: until for each, until in self._pending.items() if until > now}
            self._pending[name] = now + PENDING_S
        return Announced(name, self._gateway, ended)

    def _to_tell(self, unsent: deque[tuple[float, Ended]], now: float) -> tuple[Ended, ...]:
        due = tuple(ended for at, ended in unsent if at <= now)
        later = [each for each in unsent if each[0] > now]
        unsent.clear()
        unsent.extend(later)
        return due

    def withdraw(self, key: InFlightKey | None) -> None:
        """The look-up has found an answer: this request does not begin here."""
        if key is not None:
            self._pending.pop(name_of(key), None)

    def _has_begun(self, key: InFlightKey) -> None:
        name = name_of(key)
        self._pending.pop(name, None)
        waiting = self._begun.pop(name, None)
        if waiting is not None:
            waiting.set()

    def _has_ended(self, key: InFlightKey) -> None:
        name = name_of(key)
        if name in self._joined:
            self._joined.discard(name)
        else:
            is_remembered = self.memory.remembered(key[0]) is not None
            self._note_end(Ended(name, self._gateway), REMEMBERED_S if is_remembered else 0.0)

    def _note_end(self, ended: Ended, after_s: float = 0.0) -> None:
        at = time.monotonic() + after_s
        for unsent in self._ended:
            unsent.append((at, ended))

    # ---- joining ----

    async def join(self, key: InFlightKey, gateway: str, priority: int) -> SharedStream | Hit | None:
        """The stream of an identical request at ``gateway``, or the answer that this has remembered since it
        ended; ``None``: there is none, or it cannot be had, and the request begins here."""
        name = name_of(key)
        self._pending.pop(name, None)
        address = self._address_of(gateway)
        stream = None if address is None else await self._stream_at(address, _Asked(name, priority))
        if stream is None:
            self.took_over(key, gateway)
        return stream

    def joined(self, key: InFlightKey) -> None:
        """The request that begins here under ``key`` is another gateway's: no other gateway joins it here."""
        self._joined.add(name_of(key))

    def took_over(self, key: InFlightKey, gateway: str) -> None:
        """``gateway`` has lost the request, and this one asks an engine: others join it here."""
        name = name_of(key)
        self._joined.discard(name)
        self._note_end(Ended(name, gateway, by=self._gateway))

    async def _stream_at(self, address: PrivateAddress, asked: _Asked) -> SharedStream | Hit | None:
        try:
            async with asyncio.timeout(ACCEPT_TIMEOUT_S):
                return await self._ask(address, asked)
        except (NoConnection, BrokenConnection, StreamLost, TimeoutError) as error:
            logger.info("a request cannot be joined at another gateway: %r", error)
            return None

    async def _ask(self, address: PrivateAddress, asked: _Asked) -> SharedStream | Hit | None:
        origin = Origin.behind(address)
        request = request_bytes(origin, "POST", JOIN, {}, msgspec.msgpack.encode(asked))
        connection, first = await self._connections.begin(origin, request)
        give_back = partial(self._connections.give_back, origin, connection)
        if connection.status == REMEMBERED:
            try:
                return _hit(await _rest(connection, first))
            finally:
                give_back()
        if connection.status != OK:
            give_back()
            return None
        return SharedStream(connection, first, give_back)

    # ---- being joined ----

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        asked = _asked(body) if scope["path"] == JOIN else None
        # As this gateway's own clients: from the moment that an answer is remembered, no request joins it.
        hit = None if asked is None else self.memory.remembered(key_of(asked.key)[0])
        reader = None if asked is None or hit is not None else await self._reader(asked)
        if reader is None:
            status, content = (NOT_HERE, b"-") if hit is None else (REMEMBERED, WIRE.encode(hit))
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": content})
            return
        await send({"type": "http.response.start", "status": OK, "headers": []})
        try:
            await _Sending(reader, send).run(receive)
        finally:
            reader.close()

    async def _reader(self, asked: _Asked) -> Reader | None:
        key = key_of(asked.key)
        if asked.key in self._joined:
            return None
        reader = self.in_flight.join(key, asked.priority)
        until = self._pending.get(asked.key, 0.0)
        if reader is not None or until <= time.monotonic():
            return reader
        begun_here = self._begun.setdefault(asked.key, asyncio.Event())
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await begun_here.wait()
        except TimeoutError:
            return None
        finally:
            if self._begun.get(asked.key) is begun_here:
                del self._begun[asked.key]
        return None if asked.key in self._joined else self.in_flight.join(key, asked.priority)


class _Sending:
    """One reader's bytes, as frames, to another gateway."""

    def __init__(self, reader: Reader, send: Send) -> None:
        self._reader = reader
        self._send = send
        self._sent_at = 0.0

    async def run(self, receive: Receive) -> None:
        """Until the answer's end, or until the other gateway has left."""
        await self._frame(frame(Kind.ACCEPTED))
        loop = asyncio.get_running_loop()
        sending = loop.create_task(self._pass_on())
        beside = [loop.create_task(_until_left(receive, sending)), loop.create_task(self._live())]
        try:
            await asyncio.wait([sending])
        finally:
            for task in (sending, *beside):
                task.cancel()
            await asyncio.gather(sending, *beside, return_exceptions=True)

    async def _pass_on(self) -> None:
        try:
            opened = await self._reader.begin()
            await self._frame(begun(opened.head))
            while chunk := await opened.read():
                await self._frame(frame(Kind.DATA, chunk))
            last = frame(Kind.END)
        except (RateLimited, BudgetEnded):
            last = b""  # limits of the client here: the other gateway asks for its own, as for a lost answer
        except PromptlyError as error:
            last = failed(error)
        await self._frame(last, more=False)

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(WAITING_S)
            if time.monotonic() - self._sent_at >= WAITING_S:
                await self._frame(frame(Kind.WAITING))

    async def _frame(self, data: bytes, *, more: bool = True) -> None:
        self._sent_at = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


async def _until_left(receive: Receive, sending: asyncio.Task[None]) -> None:
    await receive()  # the request is whole: the next message is that the caller has left
    sending.cancel()


WIRE = msgspec.msgpack.Encoder(uuid_format="bytes")
HIT = msgspec.msgpack.Decoder(Hit)


def _asked(body: bytes) -> _Asked | None:
    try:
        asked = msgspec.msgpack.decode(body, type=_Asked)
        key_of(asked.key)
    except (msgspec.DecodeError, ValueError):
        return None
    return asked


async def _rest(connection: Connection, first: bytes) -> bytes:
    body = bytearray(first)
    while more := await connection.read_some():
        body += more
    return bytes(body)


def _hit(body: bytes) -> Hit | None:
    """``None``: from a gateway of another version."""
    try:
        return HIT.decode(body)
    except msgspec.DecodeError:
        return None


def _nowhere(_: str) -> None:
    """Before this gateway has been introduced to others."""


def name_of(key: InFlightKey) -> bytes:
    entry_id, streams, fails_over = key
    return entry_id.bytes + bytes((streams, fails_over))


def key_of(name: bytes) -> InFlightKey:
    """Raises: ValueError."""
    if len(name) != NAME_BYTES:
        raise ValueError(f"a request's key has {NAME_BYTES} bytes")
    return UUID(bytes=name[:16]), bool(name[16]), bool(name[17])
