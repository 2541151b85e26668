"""The engine: routes, faults, start and stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from sim_engine.connection import Connection, Listener
from sim_engine.faults import NO_FAULTS, Faults, FaultSource, faults_of
from sim_engine.intake import Intake
from sim_engine.metrics import Stats
from sim_engine.realtime import RealtimeConnection
from sim_engine.requests import Refused, parse_tokenize
from sim_engine.responses import error_body, to_json
from sim_engine.scheduler import Scheduler
from sim_engine.settings import DEFAULTS, SimSettings

CLOSE_S = 1.0
"""How long a stop waits until clients have read what was written."""


class SimEngine:
    """An HTTP server that answers like an engine with these settings. Create it in a running event loop."""

    def __init__(self, settings: SimSettings = DEFAULTS, faults: Faults = NO_FAULTS) -> None:
        self.settings = settings
        self.scheduler = Scheduler(settings)
        self.connections: set[Connection] = set()
        self.ending = False
        self.ended = asyncio.Event()
        """Set by ``stop``, ``kill`` and ``POST /sim/die``."""
        self._faults = FaultSource(faults, settings.seed)
        self._intake = Intake(settings, self.scheduler, self._faults)
        self._listener = Listener(lambda: Connection(self))
        self.realtime: list[RealtimeConnection] = []
        self._recovery: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns the URL."""
        await self._listener.open(host, port)
        await self.set_faults(self._faults.current)
        return self._listener.url

    async def stop(self) -> None:
        """Close every connection and stop listening."""
        await self._end(Connection.close)

    async def kill(self) -> None:
        """Reset every connection and stop listening, as if the process had died."""
        await self._end(Connection.reset)

    async def set_faults(self, faults: Faults) -> None:
        """Replace the faults of the engine."""
        self._faults.set(faults)
        if self._recovery is not None:
            self._recovery.cancel()
        if faults.for_s is not None:
            self._recovery = asyncio.get_running_loop().call_later(
                faults.for_s, lambda: self._spawn(self.set_faults(NO_FAULTS))
            )
        if faults.refuse:
            await self._listener.close()
        elif not self._listener.is_open and not self.ended.is_set():
            await self._listener.open()

    async def until(self, check: Callable[[Stats], bool]) -> None:
        """Wait until ``check`` holds; it is asked whenever a request comes, goes or gets a slot."""
        while not check(self.stats()):
            await self.scheduler.change()

    def stats(self) -> Stats:
        return self.scheduler.stats(connections=len(self.connections), seen=list(self._intake.seen))

    def handle(self, client: Connection, route: str, headers: dict[str, str], body: bytes) -> None:
        """Answer one request, now or later, through ``client``. ``route`` is method and path."""
        if self._faults.current.refuse and " /sim/" not in route:
            client.reset()
            return
        try:
            self._route(client, route, headers, body)
        except Refused as error:
            client.respond(error.status, error_body(error.status, str(error)))

    def _route(self, client: Connection, route: str, headers: dict[str, str], body: bytes) -> None:
        expected = f"Bearer {self.settings.api_key}"
        if " /v1/" in route and self.settings.api_key and headers.get("authorization") != expected:
            raise Refused(401, "Unauthorized")
        match route:
            case "POST /v1/chat/completions" | "POST /v1/completions" | "POST /v1/chat/completions/resume":
                self._intake.take(client, route.partition(" ")[2], headers, body)
            case "POST /tokenize":
                ids = parse_tokenize(body)
                about = {"count": len(ids), "max_model_len": self.settings.max_model_len, "tokens": ids}
                client.respond(200, to_json(about))
            case "GET /v1/realtime":
                self.realtime.append(RealtimeConnection(client, headers, self.settings))
            case "GET /v1/models":
                client.respond(200, to_json({"object": "list", "data": [_model_card(self.settings)]}))
            case "GET /health":
                client.respond(200, b"")
            case "GET /sim/stats":
                client.respond(200, to_json(asdict(self.stats())))
            case "POST /sim/faults":
                self._spawn(self._change_faults(client, body))
            case "POST /sim/die":
                self._spawn(self.kill())
            case _:
                raise Refused(404, "Not Found")

    async def _change_faults(self, client: Connection, body: bytes) -> None:
        try:
            await self.set_faults(faults_of(json.loads(body or b"{}")))
        except (ValueError, AttributeError) as error:
            client.respond(400, error_body(400, str(error)))
        else:
            client.respond(200, to_json(asdict(self._faults.current)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, close: Callable[[Connection], None]) -> None:
        self.ending = True
        await self._listener.close()
        self.scheduler.wheel.stop()
        if self._recovery is not None:
            self._recovery.cancel()
        closing = [connection.closed for connection in self.connections]
        for connection in list(self.connections):
            close(connection)
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_S)
        self.ended.set()


def _model_card(settings: SimSettings) -> dict[str, Any]:
    """The model as ``/v1/models`` shows it."""
    return {
        "id": settings.model,
        "object": "model",
        "created": 0,
        "owned_by": "sim",
        "root": settings.model,
        "parent": None,
        "max_model_len": settings.max_model_len,
    }
