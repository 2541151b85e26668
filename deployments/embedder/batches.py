"""Dynamic batching: a call runs at once if nothing runs; calls that arrive during a pass share the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class _Call(Generic[Result]):
    """One caller's texts; the first ``taken`` of them are in a running pass or done."""

    texts: list[str]
    done: asyncio.Future[list[Result]]
    results: list[Result] = field(default_factory=list)
    taken: int = 0


class Batches(Generic[Result]):
    """Runs ``encode`` over the texts of all waiting calls, one pass of at most ``most`` texts at a time.

    A pass takes one text from each call in turn, so a call of one text waits only for the running pass, even
    while a call of thousands is in progress. For one event loop.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], Awaitable[Sequence[Result]]],
        most: int,
        wait_s: float = 0.0,
    ) -> None:
        """``wait_s``: how long a text that arrives while nothing runs waits for others to join its pass."""
        self._encode = encode
        self._most = most
        self._wait_s = wait_s
        self._waiting: deque[_Call[Result]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def run(self, texts: Sequence[str]) -> list[Result]:
        """One result per text, in order. Raises what ``encode`` raises for a pass with any of the texts."""
        if not texts:
            return []
        call: _Call[Result] = _Call(list(texts), asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await call.done

    async def _work(self) -> None:
        try:
            if self._wait_s > 0:
                await asyncio.sleep(self._wait_s)
            while taken := self._take():
                await self._pass(taken)
        finally:
            self._worker = None

    def _take(self) -> list[tuple[_Call[Result], str]]:
        taken: list[tuple[_Call[Result], str]] = []
        while self._waiting and len(taken) < self._most:
            call = self._waiting.popleft()
            if call.done.done():  # the caller was cancelled, or an earlier pass failed
                continue
            taken.append((call, call.texts[call.taken]))
            call.taken += 1
            if call.taken < len(call.texts):
                self._waiting.append(call)
        return taken

    async def _pass(self, taken: list[tuple[_Call[Result], str]]) -> None:
        try:
            results = await self._encode([text for _, text in taken])
        except Exception as error:  # any error of the model goes to the callers
            for call, _ in taken:
                if not call.done.done():
                    call.done.set_exception(error)
            return
        for (call, _), result in zip(taken, results, strict=True):
            call.results.append(result)
            if len(call.results) == len(call.texts) and not call.done.done():
                call.done.set_result(call.results)
