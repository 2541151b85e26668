"""New requests enter the application one a turn of the event loop, their senders in turn.

What a request does before it first waits (its head, its key, its JSON) takes about a millisecond of the event
loop. A hundred that arrive together would take a hundred in a row, and everybody else's streams and requests
would stand still that long. One a turn costs nobody anything: what is left of the turn is free for others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})

MOST_SENDER_BYTES: Final = 256
"""Of a credential so much names its sender: longer ones belong to nobody."""

Sender = bytes
"""The credential as it was sent, before anybody has checked it."""


def sender_of(headers: Iterable[tuple[bytes, bytes]]) -> Sender:
    """Who sends a request, as far as that costs nothing to know; requests without a credential share a
    place."""
    return next((value[:MOST_SENDER_BYTES] for name, value in headers if name in CREDENTIALS), b"")


class Entrance:
    """One process's new requests. A request that finds nobody before it enters at once."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Sender, deque[asyncio.Future[None]]] = OrderedDict()
        self._is_taken = False

    async def turn(self, sender: Sender) -> None:
        """Wait for this request's turn."""
        loop = asyncio.get_running_loop()
        if not self._is_taken:
            self._is_taken = True
            loop.call_soon(self._next)
            return
        turn = loop.create_future()
        self._queues.setdefault(sender, deque()).append(turn)
        await turn

    def _next(self) -> None:
        """The next request enters in this turn of the loop: the sender's who waits longest for its turn."""
        turn = self._pop()
        if turn is None:
            self._is_taken = False
            return
        turn.set_result(None)
        asyncio.get_running_loop().call_soon(self._next)

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
