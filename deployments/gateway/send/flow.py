"""A stream that flows: its bytes go to the client in the turn of the event loop in which they arrive.

A task that is woken for every chunk of every stream goes through a future, a turn of the loop and some
fifteen coroutines for each (docs/benchmarks.md has the figures). While a stream flows its task sleeps. It is
woken for what takes time or ends the stream: the end, an error, a lost member, a client that reads slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from deployments.gateway.request.answer import Live
from deployments.gateway.request.exchange import Exchange


class Flow:
    """The bytes of one answer on their way to one client. ``translate``: what the client gets for a part of
    the answer."""

    def __init__(self, exchange: Exchange, answer: Live, translate: Callable[[bytes], bytes]) -> None:
        self._exchange = exchange
        self._answer = answer
        self._translate = translate
        self._left = b""
        self._stopped: asyncio.Future[None] | None = None

    async def run(self) -> bytes:
        """Returns when only ``read`` and ``write`` can go on, with what the client was not sent yet.
        Cancelling it loses nothing of the answer.

        Raises what ``translate`` raises.
        """
        if not self._answer.listen(self._arrived):
            return b""
        self._stopped = asyncio.get_running_loop().create_future()
        try:
            await self._stopped
        finally:
            self._answer.unlisten()
        left, self._left = self._left, b""
        return left

    def _arrived(self) -> None:
        """Called by the connection. An error in here must end this stream, and not the connection's turn."""
        stopped = self._stopped
        if stopped is None or stopped.done():
            return
        try:
            while chunk := self._answer.read_now():
                passed = self._translate(chunk)
                if passed and not self._exchange.write_now(passed):
                    self._left = passed
                    chunk = None
                    break
        except Exception as error:
            stopped.set_exception(error)
        else:
            if chunk is None:
                stopped.set_result(None)
