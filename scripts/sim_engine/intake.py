"""Requests for a generation, as they come: counted, read, and answered, or hit by a fault."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

from sim_engine.connection import Connection
from sim_engine.faults import NO_FAULTS, Faults, FaultSource
from sim_engine.generation import Answer
from sim_engine.plan import read_plan
from sim_engine.requests import Generation, Refused, parse_generation
from sim_engine.responses import error_body, event
from sim_engine.scheduler import Scheduler
from sim_engine.settings import SimSettings


class Intake:
    """``seen`` are the newest requests, as many as ``keep_bodies``."""

    def __init__(self, settings: SimSettings, scheduler: Scheduler, faults: FaultSource) -> None:
        self.seen: deque[dict[str, Any]] = deque(maxlen=settings.keep_bodies)
        self._settings = settings
        self._scheduler = scheduler
        self._faults = faults
        self._plan = read_plan(settings.plan)

    def take(self, client: Connection, path: str, headers: dict[str, str], body: bytes) -> None:
        """Answer one request through ``client``. Raises: Refused: it is wrong."""
        self._scheduler.counters.requests += 1
        if self._settings.keep_bodies:
            self.seen.append({"path": path, "headers": headers, "body": body.decode(errors="replace")})
        request_id = headers.get("x-request-id") or os.urandom(16).hex()
        request = parse_generation(path, body, request_id, self._settings, self._plan)
        faults = self._faults_for(headers.get("x-sim-fault"))
        if not _answer_wrongly(client, request, faults):
            client.answer = answer = Answer(self._settings, self._scheduler, client, request, faults)
            if faults.first_byte_ms:
                self._scheduler.wheel.at(time.monotonic() + faults.first_byte_ms / 1000, answer.open)
            else:
                answer.open()
        self._scheduler.note_change()

    def _faults_for(self, header: str | None) -> Faults:
        try:
            faults = self._faults.draw(header)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        self._scheduler.counters.faulted += faults != NO_FAULTS
        return faults


def _answer_wrongly(client: Connection, request: Generation, faults: Faults) -> bool:
    """Whether a fault replaces the whole answer; if so, it has been sent."""
    if faults.die_before:
        client.reset()
    elif faults.status is not None:
        client.respond(faults.status, error_body(faults.status, "A simulated failure."))
    elif faults.garbage == "http":
        client.write(b"\x16\x03\x01 these bytes are not HTTP\r\n\r\n")
        client.close()
    elif faults.garbage == "json" and request.stream:
        client.start_stream()
        client.end_stream(event(b'{"id": this is not JSON'))
    elif faults.garbage == "json":
        client.respond(200, b'{"id": this is not JSON')
    else:
        return False
    return True
