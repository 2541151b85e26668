"""An answer on its way to a client, of which the bytes are kept for the capture."""

from __future__ import annotations

from collections.abc import Callable

from deployments.gateway.request.answer import Answer, Head, Live, OpenAnswer, live

Done = Callable[[Head, list[bytes], bool], None]
"""Given the answer's bytes, and whether it came to its end."""


class CopiedAnswer:
    """An :class:`~deployments.gateway.request.answer.Answer`. A longer one than ``most`` bytes is passed on,
    and not kept. ``done`` is called once, when the client has its answer, or has left."""

    def __init__(self, answer: Answer, most: int, done: Done) -> None:
        self._answer = answer
        self._most = most
        self._done = done
        self._open: _Copy | None = None

    async def begin(self) -> OpenAnswer:
        opened = await self._answer.begin()
        flowing = live(opened)
        if flowing is None:
            self._open = _Copy(opened, self._most, self._done)
        else:
            self._open = _LiveCopy(opened, flowing, self._most, self._done)
        return self._open

    def close(self) -> None:
        if self._open is None:
            self._answer.close()
        else:
            self._open.close()


class _Copy:
    """A copy as a list of pieces: nothing is read, joined or decoded here."""

    def __init__(self, opened: OpenAnswer, most: int, done: Done) -> None:
        self._opened = opened
        self._left = most
        self._done: Done | None = done
        self._parts: list[bytes] = []
        self._is_complete = False

    @property
    def head(self) -> Head:
        return self._opened.head

    async def read(self) -> bytes:
        part = await self._opened.read()
        if part:
            self._keep(part)
        else:
            self._is_complete = True
        return part

    def close(self) -> None:
        self._opened.close()
        done, self._done = self._done, None
        if done is not None:
            done(self._opened.head, self._parts, self._is_complete)

    def _keep(self, part: bytes) -> None:
        self._left -= len(part)
        if self._left >= 0:
            self._parts.append(part)
        else:
            self._parts = []


class _LiveCopy(_Copy, Live):
    def __init__(self, opened: OpenAnswer, flowing: Live, most: int, done: Done) -> None:
        super().__init__(opened, most, done)
        self._flowing = flowing

    def read_now(self) -> bytes | None:
        part = self._flowing.read_now()
        if part:
            self._keep(part)
        return part

    def listen(self, arrived: Callable[[], None]) -> bool:
        return self._flowing.listen(arrived)

    def unlisten(self) -> None:
        self._flowing.unlisten()
