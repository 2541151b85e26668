"""vLLM's own dialect, for clients that were written for it: 16 kHz, and the events as they are."""

from __future__ import annotations

from serve_app.errors import BadRequest
from serve_app.realtime.base import NOTHING, Mark, Step
from serve_app.realtime.events import (
    APPEND,
    COMMIT,
    DELTA,
    DONE,
    UPDATE,
    ClientEvent,
    EngineEvent,
    decoded_audio,
    encoded_audio,
    to_json,
)
from serve_app.realtime.resample import ENGINE_RATE, SAMPLE_BYTES


class NativeSession:
    """See :class:`~serve_app.realtime.base.Translator`."""

    must_wait = False
    """The client itself waits for `transcription.done`, as with vLLM alone."""

    def __init__(self, model: str | None) -> None:
        self.model = model
        self.audio_s = 0.0
        self._has_audio = self._has_text = False
        self._is_started = False  # vLLM says `done` only after a first commit
        self.is_finishing = False

    def client(self, event: ClientEvent) -> Step:
        match event.type:
            case "session.update":
                return self._update(event.model)
            case "input_audio_buffer.append":
                return self._append(event)
            case "input_audio_buffer.commit":
                sent = to_json({"type": COMMIT, "final": event.final})
                if event.final:
                    self.is_finishing = self._is_started
                self._is_started = self._is_started or not event.final
                return Step(to_engine=(sent,), mark=Mark.COMMITTED if event.final else None)
        raise BadRequest(
            f"`{event.type[:64]}` is not known here: expected {UPDATE}, {APPEND} or {COMMIT}.",
            param="type",
            code="unknown_event",
        )

    def _update(self, model: str | None) -> Step:
        if model is None or (self.model is not None and model != self.model):
            raise BadRequest(
                "`model` is missing, or is not that of the session, which cannot change.",
                param="model",
                code="invalid_value",
            )
        self.model = model
        return NOTHING

    def _append(self, event: ClientEvent) -> Step:
        pcm = decoded_audio(event)
        if len(pcm) % SAMPLE_BYTES:
            raise BadRequest("`audio` ends within a sample.", param="audio", code="invalid_audio")
        begins, self._has_audio = not self._has_audio, True
        if begins:
            self.audio_s, self._has_text = 0.0, False
        self.audio_s += len(pcm) / (SAMPLE_BYTES * ENGINE_RATE)
        return Step(to_engine=(encoded_audio(pcm),), mark=Mark.BEGAN if begins else None)

    def engine(self, event: EngineEvent, message: str) -> Step:
        if event.type == DELTA:
            first, self._has_text = not self._has_text and bool(event.delta), True
            return Step((message,), mark=Mark.TEXT if first else None)
        if event.type == DONE:
            self._has_audio = self._is_started = self.is_finishing = False
            return Step((message,), mark=Mark.DONE)
        return NOTHING
