"""Keep-alive messages to a client whose stream has not begun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

LAST_WRITE_S = 5.0
"""A client that does not read keeps the end of the wait no longer than this."""


class Waiting:
    """Calls ``say`` every ``period_s`` until :meth:`end`. Until the first call it costs one timer."""

    def __init__(self, say: Callable[[], Awaitable[None]], period_s: float) -> None:
        self._say = say
        self._period_s = period_s
        self._saying: asyncio.Future[None] | None = None
        self._ended = False
        self._timer = asyncio.get_running_loop().call_later(period_s, self._is_due)

    def _is_due(self) -> None:
        self._saying = asyncio.ensure_future(self._say_and_wait())

    async def _say_and_wait(self) -> None:
        await self._say()
        if not self._ended:
            self._timer = asyncio.get_running_loop().call_later(self._period_s, self._is_due)

    async def end(self) -> None:
        """Send no more messages. One that is being sent is sent to its end, so that bytes of two writers
        never mix. May be called again."""
        self._ended = True
        self._timer.cancel()
        if self._saying is not None and not self._saying.done():
            await asyncio.wait({self._saying}, timeout=LAST_WRITE_S)
            self._saying.cancel()
