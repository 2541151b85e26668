"""What stands for a deployment's handle where there is no Serve."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from serve_app.fleet import EngineReport


class LocalHandle:
    """What stands for a deployment's handle: calls a plain object's methods, which may be held up or fail."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self._gates: dict[str, asyncio.Event] = {}
        self._stubborn: set[str] = set()
        self._failures: dict[str, Exception] = {}
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()

    def __getattr__(self, method: str) -> LocalMethod:
        return LocalMethod(lambda *args: LocalCall(self._call(method, args)))

    @contextmanager
    def held(self, method: str, *, stubborn: bool = False) -> Iterator[None]:
        """Calls begin, but are not answered before the block ends, or ``let`` is called. ``stubborn`` ones
        do not end before either when they are cancelled."""
        self._gates[method] = asyncio.Event()
        self._stubborn |= {method} if stubborn else set()
        try:
            yield
        finally:
            self.let(method)
            self._stubborn.discard(method)

    def let(self, method: str) -> None:
        """Answer what is held, and whatever comes."""
        if method in self._gates:
            self._gates.pop(method).set()

    @contextmanager
    def failing(self, method: str) -> Iterator[None]:
        self._failures[method] = RuntimeError("broken on purpose")
        try:
            yield
        finally:
            self.mend(method)

    def mend(self, method: str) -> None:
        """Calls no longer fail."""
        self._failures.pop(method, None)

    async def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        self.begun[method] += 1
        if method in self._gates:
            await self._wait(method, self._gates[method])
        if method in self._failures:
            raise self._failures[method]
        answer = await getattr(self.target, method)(*args)
        self.ended[method] += 1
        return answer

    async def _wait(self, method: str, gate: asyncio.Event) -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.cancelled[method] += 1
            if method in self._stubborn:
                await gate.wait()
            raise


class LocalCall:
    """What a call gives: to be awaited once, and cancelled like a ``DeploymentResponse``."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._awaiting: asyncio.Task[Any] | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        self._awaiting = asyncio.current_task()
        return (yield from self._work.__await__())

    def cancel(self) -> None:
        if self._awaiting is None:
            self._work.close()
        else:
            self._awaiting.cancel()


@dataclass(frozen=True)
class LocalMethod:
    remote: Callable[..., LocalCall]


class Replicas:
    """A deployment, and the reports of its replicas."""

    def __init__(self, *reports: EngineReport) -> None:
        self._reports = reports

    def broadcast(self, method: str, *_: Any) -> Replicas:
        return self

    async def _fetch_replica_results_async(self) -> list[Any]:
        return [Replica(report) for report in self._reports]


@dataclass
class Replica:
    report: EngineReport

    async def get_async(self) -> EngineReport:
        return self.report
