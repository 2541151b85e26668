"""Requests of one tenant begin one after another, while there are other tenants.

What a request does before it first waits takes about a millisecond of the event loop, a refusal too. A
hundred that arrive together would take a hundred in a row, and everybody else's streams and requests would
stand still that long. So between two of them the loop goes round several times: a request takes some ten
turns of the loop until it is sent to an engine, and shares few of them with the crowd. The loop does not rest
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

TURNS_BETWEEN: Final = 8
"""Turns of the event loop from one request of a crowd to the next."""

SELDOM_S: Final = 0.002
"""A tenant whose last request is longer ago is no crowd: its request begins at once."""

FORGET_S: Final = 5.0
"""A tenant is there for so long after its last request, or while one is answered."""

MOST_WAITING: Final = 2048
"""Of one tenant. More are not held back: what bounds the requests at once refuses them."""

MOST_STRANGERS: Final = 64
"""A key's first request is among them, and must not wait for long."""

Waiting = tuple[asyncio.Future[None], float]
"""A request, and since when it waits."""


STRANGERS: Final = ""
"""Of whose credential nothing is known yet: they share one place, so that nobody gains by making many up."""

MOST_SENDERS: Final = 10_000

AUTHORIZATION, API_KEY = b"authorization", b"x-api-key"
CREDENTIALS: Final = frozenset({AUTHORIZATION, API_KEY})


class Senders:
    """Whose request it is, by what the gate found out about an earlier one with the same credentials. It
    tells only who waits for whom; a revoked key may still be in it. Credentials are kept as hashes."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[int, str] = OrderedDict()

    def place(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """``headers`` as they came."""
        sent = {name: value for name, value in headers if name in CREDENTIALS}
        return self._tenants.get(_secret(sent.get(AUTHORIZATION), sent.get(API_KEY)), STRANGERS)

    def learn(self, headers: Mapping[str, str], tenant: str) -> None:
        """The gate has let the request in."""
        given = [headers.get(name.decode()) for name in (AUTHORIZATION, API_KEY)]
        sent = _secret(*(None if value is None else value.encode("latin-1") for value in given))
        if sent == NO_SECRET:
            return
        self._tenants[sent] = tenant
        self._tenants.move_to_end(sent)
        if len(self._tenants) > MOST_SENDERS:
            self._tenants.popitem(last=False)


def _secret(authorization: bytes | None, api_key: bytes | None) -> int:
    """A hash of the key or token that counts, however it was written. Python's hash has a secret of this
    process: nobody can choose credentials that collide."""
    return hash(
        (api_key or b"").strip() if authorization is None else authorization.partition(b" ")[2].strip()
    )


NO_SECRET: Final = hash(b"")


class Entrance:
    """One gateway's new requests. ``answered``: tenants whose requests are being answered. ``clock``: in
    seconds; default: the event loop's."""

    def __init__(
        self, answered: Callable[[], Collection[str]], clock: Callable[[], float] | None = None
    ) -> None:
        self._answered = answered
        self._clock = clock or asyncio.get_running_loop().time
        self._queues: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self._last: OrderedDict[str, float] = OrderedDict()
        self._rounds_left: int | None = None

    async def turn(self, tenant: str) -> bool:
        """Wait for this request's turn. Whether it had to."""
        now = self._clock()
        before = self._last.pop(tenant, now - FORGET_S)
        self._last[tenant] = now
        queue = self._queues.get(tenant, ())
        is_crowd = bool(queue) or (now - before <= SELDOM_S and self._has_others(tenant, now))
        if not is_crowd or len(queue) >= (MOST_WAITING if tenant else MOST_STRANGERS):
            return False
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant, deque()).append((turn, now))
        if self._rounds_left is None:
            self._go_round(TURNS_BETWEEN)
        await turn
        return True

    def waiting(self) -> int:
        """Requests of known tenants that wait now."""
        return sum(len(queue) for tenant, queue in self._queues.items() if tenant)

    def longest_s(self) -> float:
        """How long the first of them has waited."""
        now = self._clock()
        return max((now - queue[0][1] for tenant, queue in self._queues.items() if tenant), default=0.0)

    def _has_others(self, tenant: str, now: float) -> bool:
        while now - next(iter(self._last.values())) > FORGET_S:
            self._last.popitem(last=False)
        return len(self._last) > 1 or any(other != tenant for other in self._answered())

    def _go_round(self, rounds: int) -> None:
        self._rounds_left = rounds
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        if self._rounds_left:
            self._go_round(self._rounds_left - 1)
            return
        turn = self._pop()
        if turn is None:
            self._rounds_left = None
            return
        turn.set_result(None)
        self._go_round(TURNS_BETWEEN)

    def _pop(self) -> asyncio.Future[None] | None:
        """The first request of the first tenant, which then goes behind the others; ``None``: nobody
        waits."""
        while self._queues:
            tenant, queue = self._queues.popitem(last=False)
            while queue and queue[0][0].done():  # it was cancelled
                queue.popleft()
            if not queue:
                continue
            turn, _ = queue.popleft()
            if queue:
                self._queues[tenant] = queue
            return turn
        return None
