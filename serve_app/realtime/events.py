"""The events of both ends as typed values, and the JSON that they are sent as."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from serve_app.errors import BadRequest, EngineError, ErrorDetails, PromptlyError, UpstreamFailed
from serve_app.json_errors import in_json_words, no_json

NewId = Callable[[str], str]
"""A new id that begins with the given letters."""

APPEND = "input_audio_buffer.append"
COMMIT = "input_audio_buffer.commit"
CLEAR = "input_audio_buffer.clear"
UPDATE = "session.update"
DELTA = "transcription.delta"
DONE = "transcription.done"
ERROR = "error"


class Format(msgspec.Struct, frozen=True):
    type: str = "audio/pcm"
    rate: int | None = None


class Transcription(msgspec.Struct, frozen=True):
    model: str | None = None


class AudioInput(msgspec.Struct, frozen=True):
    """``turn_detection`` is anything but ``None`` where the client asks for one."""

    format: Format | None = None
    transcription: Transcription | None = None
    turn_detection: Any = None


class Audio(msgspec.Struct, frozen=True):
    input: AudioInput | None = None


class SessionFields(msgspec.Struct, frozen=True):
    """OpenAI's ``session``, as far as it is read. The other fields are hints that vLLM does not take."""

    type: str = "transcription"
    audio: Audio | None = None
    include: Any = None


class ClientEvent(msgspec.Struct, frozen=True):
    """``model`` is vLLM's field of `session.update`, ``session`` OpenAI's."""

    type: str
    event_id: str | None = None
    audio: str | None = None
    final: bool = False
    model: str | None = None
    session: SessionFields | None = None


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    total_tokens: int = 0


class EngineEvent(msgspec.Struct, frozen=True):
    """What vLLM 0.29 sends."""

    type: str
    delta: str = ""
    text: str = ""
    usage: Usage | None = None
    error: str = ""
    code: str | None = None


_CLIENT = msgspec.json.Decoder(ClientEvent)
_ENGINE = msgspec.json.Decoder(EngineEvent)


def read_event(message: str | bytes) -> ClientEvent:
    """Raises: BadRequest: it is no event."""
    if isinstance(message, bytes):
        raise BadRequest("Events are text messages; this one is binary.", code="invalid_event")
    try:
        return _CLIENT.decode(message)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The event is wrong: {in_json_words(str(error))}.", code="invalid_event") from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadRequest(f"The event is not JSON: {no_json(error, message)}.", code="invalid_json") from None


def read_engine_event(message: str | bytes) -> EngineEvent:
    """Raises: UpstreamFailed: it is none of vLLM's events; EngineError: it is its error."""
    try:
        event = _ENGINE.decode(message)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise UpstreamFailed("The engine sent no event.", code="upstream_failed") from None
    if event.type == ERROR:
        code = event.code or "upstream_failed"
        raise EngineError(ErrorDetails(event.error or "The engine failed.", "upstream_error", None, code))
    return event


def decoded_audio(event: ClientEvent) -> bytes:
    """Raises: BadRequest: the event has no audio in base64."""
    if not event.audio:
        raise BadRequest("`audio` is missing or empty.", param="audio", code="invalid_audio")
    try:
        return binascii.a2b_base64(event.audio, strict_mode=True)
    except (binascii.Error, ValueError):
        raise BadRequest("`audio` is not base64.", param="audio", code="invalid_audio") from None


def encoded_audio(pcm: bytes) -> str:
    """The engine's event with this audio. Base64 needs no quoting in JSON."""
    return f'{{"type":"{APPEND}","audio":"{binascii.b2a_base64(pcm, newline=False).decode()}"}}'


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def error_event(error: PromptlyError, new_id: NewId, caused_by: str | None = None) -> str:
    """OpenAI's `error` event. ``caused_by``: the client's own id of the event that was wrong."""
    details = error.details
    return to_json(
        {
            "type": ERROR,
            "event_id": new_id("event"),
            "error": {
                "type": details.type,
                "code": details.code,
                "message": details.message,
                "param": details.param,
                "event_id": caused_by,
            },
        }
    )
