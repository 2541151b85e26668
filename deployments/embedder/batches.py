"""Dynamic batching: a call runs at once if nothing runs; calls that arrive during a pass share the next."""

from __future__ import annotations

import asyncio
import sys
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


class _Turns(Generic[Result]):
    """The waiting calls: owners take turns, and so do the calls of each owner; a turn is one text."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[_Call[Result]]] = {}
        self._owners: deque[str] = deque()

    def add(self, owner: str, call: _Call[Result]) -> None:
        if owner not in self._calls:
            self._calls[owner] = deque()
            self._owners.append(owner)
        self._calls[owner].append(call)

    def take(self, most: int, most_characters: int) -> list[tuple[_Call[Result], str]]:
        """The next texts; at least one, if any waits. An owner whose text does not fit is the first of the
        next pass; the others, whose texts do, go on."""
        taken: list[tuple[_Call[Result], str]] = []
        too_long: list[str] = []
        characters = 0
        while len(taken) < most and (call := self._first()) is not None:
            text = call.texts[call.taken]
            if taken and characters + len(text) > most_characters:
                too_long.append(self._owners.popleft())
                continue
            characters += len(text)
            taken.append((call, text))
            call.taken += 1
            self._turn()
        self._owners.extendleft(reversed(too_long))
        return taken

    @property
    def waiting(self) -> int:
        calls = (call for owned in self._calls.values() for call in owned)
        return sum(len(call.texts) - call.taken for call in calls if not call.done.done())

    def _first(self) -> _Call[Result] | None:
        """The call whose turn it is. Those whose callers left or were told of an error are dropped."""
        while self._owners:
            calls = self._calls[self._owners[0]]
            while calls and calls[0].done.done():
                calls.popleft()
            if calls:
                return calls[0]
            del self._calls[self._owners.popleft()]
        return None

    def _turn(self) -> None:
        """The first call goes behind the others of its owner, and the owner behind the others."""
        calls = self._calls[self._owners[0]]
        call = calls.popleft()
        if call.taken < len(call.texts):
            calls.append(call)
        owner = self._owners.popleft()
        if calls:
            self._owners.append(owner)
        else:
            del self._calls[owner]


class Batches(Generic[Result]):
    """Runs ``encode`` over the texts of all waiting calls, one pass at a time.

    A pass takes one text of each owner in turn, and of an owner's calls one text of each, so a text waits for
    no more texts of another owner than there are before it of its own. Look-ups have passes of their own: one
    waits for the running pass, and if that is one of look-ups, for one of other texts. For one event loop.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], Awaitable[Sequence[Result]]],
        most: int,
        wait_s: float = 0.0,
        most_characters: int = sys.maxsize,
    ) -> None:
        """``most`` and ``most_characters`` bound the texts of a pass; a longer text has a pass of its own.
        ``wait_s``: how long a text that arrives while nothing runs waits for others to join its pass."""
        self._encode = encode
        self._most = most
        self._most_characters = most_characters
        self._wait_s = wait_s
        self._look_ups: _Turns[Result] = _Turns()
        self._others: _Turns[Result] = _Turns()
        self._ran_look_ups = False
        self._worker: asyncio.Task[None] | None = None
        self._running: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """Texts that are in no pass yet, and whose callers still wait."""
        return self._look_ups.waiting + self._others.waiting

    async def run(self, texts: Sequence[str], owner: str = "", *, is_look_up: bool = False) -> list[Result]:
        """One result per text, in order. Raises what ``encode`` raises for a pass with any of the texts. Once
        it is cancelled, no other pass takes its texts; it ends with the pass that has some of them."""
        if not texts:
            return []
        call: _Call[Result] = _Call(list(texts), asyncio.get_running_loop().create_future())
        (self._look_ups if is_look_up else self._others).add(owner, call)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        try:
            return await call.done
        except asyncio.CancelledError:
            if self._running is not None and call.taken > len(call.results):
                await asyncio.shield(self._running)
            raise

    async def _work(self) -> None:
        try:
            if self._wait_s > 0:
                await asyncio.sleep(self._wait_s)
            while taken := self._take():
                await self._pass(taken)
        finally:
            self._worker = None

    def _take(self) -> list[tuple[_Call[Result], str]]:
        """Look-ups first; after a pass of these the others, so that neither keep the other waiting."""
        kinds = (self._look_ups, self._others)
        for turns in reversed(kinds) if self._ran_look_ups else kinds:
            if taken := turns.take(self._most, self._most_characters):
                self._ran_look_ups = turns is self._look_ups
                return taken
        return []

    async def _pass(self, taken: list[tuple[_Call[Result], str]]) -> None:
        self._running = asyncio.get_running_loop().create_future()
        try:
            results = await self._encode([text for _, text in taken])
        except Exception as error:  # any error of the model goes to the callers
            for call, _ in taken:
                if not call.done.done():
                    call.done.set_exception(error)
            return
        finally:
            self._running.set_result(None)
            self._running = None
        for (call, _), result in zip(taken, results, strict=True):
            call.results.append(result)
            if len(call.results) == len(call.texts) and not call.done.done():
                call.done.set_result(call.results)
