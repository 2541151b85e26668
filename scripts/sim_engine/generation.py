"""One request on its way through the engine."""

from __future__ import annotations

import time
from typing import Protocol

from sim_engine.connection import http_chunk
from sim_engine.faults import Faults
from sim_engine.requests import Generation
from sim_engine.responses import Shape, error_body, event
from sim_engine.scheduler import Scheduler
from sim_engine.scripted import ScriptedShape, ScriptedSpeaker
from sim_engine.settings import NEVER, SimSettings
from sim_engine.text import EOS, Speaker


class Client(Protocol):
    """Where an answer goes."""

    def write(self, data: bytes, /) -> None: ...
    def start_stream(self) -> None: ...
    def end_stream(self, events: bytes) -> None: ...
    def respond(self, status: int, body: bytes) -> None: ...
    def reset(self) -> None: ...


class Answer:
    """One request from the queue to its last token."""

    def __init__(
        self,
        settings: SimSettings,
        scheduler: Scheduler,
        client: Client,
        request: Generation,
        faults: Faults,
    ) -> None:
        self.request = request
        self.ids: list[int] = []
        self._unwritten: list[int] = []
        self._interval = settings.stream_interval if request.turn is None else 1
        self.admitted_s = 0.0
        self.over = False
        self.cached_tokens = 0
        self._scheduler = scheduler
        self._client = client
        self._faults = faults
        self._shape, self._speaker = _voice(settings, request)
        self._show_cached = settings.prompt_tokens_details
        self._show_metrics = settings.per_request_metrics
        self._queued_s = self._scheduled_s = self._first_s = 0.0
        self._due_s = 0.0
        points = (faults.hang_after, faults.die_after, faults.error_after, 0 if faults.hang_before else None)
        self._fault_at = min((point for point in points if point is not None), default=NEVER)

    def open(self) -> None:
        """Queue for a slot. As in vLLM, the headers of a stream are sent at once."""
        if self.over:
            return
        if self.request.stream and not self._faults.hang_before:
            self._client.start_stream()
        self._queued_s = time.monotonic()
        self._scheduler.enqueue(self)

    def begin(self, due_s: float) -> None:
        """The prompt is prefilled; the first token is due at ``due_s``."""
        self._due_s, self._scheduled_s = due_s, self.admitted_s or time.monotonic()
        if self.request.told:
            self._tell()
        if due_s > time.monotonic():
            self._scheduler.wheel.at(due_s, self._step)
        else:
            self._step()

    def _tell(self) -> None:
        """Write the answer's beginning again, in the pieces in which it came."""
        self._first_s = time.monotonic()
        self._client.write(http_chunk(self._shape.role()))
        for piece in self.request.told:
            self._client.write(http_chunk(self._shape.chunk(piece, len(self.ids), None)))
            self.ids += piece
        self._speaker.go_on_behind(self.ids)

    def _step(self) -> None:
        """Generate one token."""
        if self.over:
            return
        position = len(self.ids)
        if position == self._fault_at:
            self._fail()
            return
        if not position:
            self._first_s = time.monotonic()
        token = self._speaker.next()
        self.ids.append(token)
        reason = self._finish_reason(token)
        if self.request.stream:
            self._stream(token, position, reason)
        if reason is not None:
            self._finish(reason)
            return
        # A late token makes later ones late as well, as in a real engine; no burst catches up.
        self._due_s = max(self._due_s + self._scheduler.itl_s(), time.monotonic())
        self._scheduler.wheel.at(self._due_s, self._step)

    def _stream(self, token: int, position: int, reason: str | None) -> None:
        self._unwritten.append(token)
        if reason is None and position and len(self._unwritten) < self._interval:
            return
        chunk = http_chunk(self._shape.chunk(self._unwritten, position, reason))
        self._client.write(chunk if position else http_chunk(self._shape.role()) + chunk)
        self._unwritten.clear()

    def _finish_reason(self, token: int) -> str | None:
        if token == EOS:
            return "stop"
        return "length" if len(self.ids) == self.request.max_tokens else None

    def _finish(self, reason: str) -> None:
        self._scheduler.finish(self)
        cached = self.cached_tokens if self._show_cached else None
        if self.request.stream:
            self._client.end_stream(self._shape.end(len(self.ids), cached, self._metrics()))
        else:
            self._client.respond(200, self._shape.whole(self.ids, reason, cached, self._metrics()))

    def _metrics(self) -> dict[str, float] | None:
        if not self._show_metrics:
            return None
        return {
            "time_to_first_token_ms": (self._first_s - self._scheduled_s) * 1000,
            "generation_time_ms": (time.monotonic() - self._first_s) * 1000,
            "queue_time_ms": max(0.0, self._scheduled_s - self._queued_s) * 1000,
        }

    def _fail(self) -> None:
        """Reset, end with an error, or hang. No further step is planned."""
        if self._fault_at == self._faults.die_after:
            self._client.reset()
        elif self._fault_at == self._faults.error_after:
            self._scheduler.release(self)
            body = error_body(500, "EngineCore encountered an issue.")
            if self.request.stream:
                self._client.end_stream(event(body) + event(b"[DONE]"))
            else:
                self._client.respond(500, body)


def _voice(settings: SimSettings, request: Generation) -> tuple[Shape, Speaker | ScriptedSpeaker]:
    """What writes the answer's bytes, and what chooses its tokens."""
    if request.turn is None:
        return Shape(request, settings.model), Speaker(settings, request.prompt, request.ignore_eos)
    shape = ScriptedShape(request, settings.model, request.turn)
    return shape, ScriptedSpeaker(shape.ids)
