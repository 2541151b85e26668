"""New requests of one sender enter the application one after another, while there are other senders.

What a request does before it first waits (its head, its key, its JSON) takes about a millisecond of the event
loop. A hundred that arrive together would take a hundred in a row, and everybody else's streams and requests
would stand still that long. So between two of them the loop goes round several times: a request takes some
ten turns of the loop until it is sent to an engine, and shares few of them with the crowd. The loop does not
rest meanwhile, so where nobody else has anything to do the crowd loses little.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})

MOST_SENDER_BYTES: Final = 256
"""Of a credential so much names its sender: longer ones belong to nobody."""

TURNS_BETWEEN: Final = 8
"""Turns of the event loop from one request of a crowd to the next."""

SELDOM_S: Final = 0.01
"""A sender whose last request is longer ago is no crowd: its request enters at once."""

FORGET_S: Final = 5.0
"""A sender counts as one for so long after its last request."""

Sender = bytes
"""The credential as it was sent, before anybody has checked it."""


def sender_of(headers: Iterable[tuple[bytes, bytes]]) -> Sender:
    """Who sends a request, as far as that costs nothing to know; requests without a credential share a
    place."""
    return next((value[:MOST_SENDER_BYTES] for name, value in headers if name in CREDENTIALS), b"")


class Entrance:
    """One process's new requests. ``clock``: in seconds, of the event loop by default."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._queues: OrderedDict[Sender, deque[asyncio.Future[None]]] = OrderedDict()
        self._last: OrderedDict[Sender, float] = OrderedDict()
        self._rounds_left: int | None = None

    async def turn(self, sender: Sender) -> None:
        """Wait for this request's turn."""
        loop = asyncio.get_running_loop()
        if self._enters_at_once(sender, (self._clock or loop.time)()):
            return
        turn = loop.create_future()
        self._queues.setdefault(sender, deque()).append(turn)
        if self._rounds_left is None:
            self._go_round(TURNS_BETWEEN)
        await turn

    def _enters_at_once(self, sender: Sender, now: float) -> bool:
        before = self._last.pop(sender, -FORGET_S)
        self._last[sender] = now
        while now - next(iter(self._last.values())) > FORGET_S:
            self._last.popitem(last=False)
        return len(self._last) == 1 or (now - before > SELDOM_S and sender not in self._queues)

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
        """The first request of the first sender, who then goes behind the others; ``None``: nobody waits."""
        while self._queues:
            sender, queue = self._queues.popitem(last=False)
            while queue and queue[0].done():  # its client has left
                queue.popleft()
            if not queue:
                continue
            turn = queue.popleft()
            if queue:
                self._queues[sender] = queue
            return turn
        return None
