"""OpenAI's transcription session over vLLM's events.

vLLM 0.29 takes 16 kHz audio, begins to transcribe at a first commit and ends at a commit with ``final``.
OpenAI's clients send 24 kHz and one commit, at the end. So the first audio of an utterance begins it at the
engine, whose text comes while the client still speaks, and the client's commit ends it.
"""

from __future__ import annotations

from enum import Enum, auto

from serve_app.errors import BadRequest
from serve_app.realtime.base import NOTHING, Mark, Step
from serve_app.realtime.events import (
    APPEND,
    CLEAR,
    COMMIT,
    DELTA,
    DONE,
    UPDATE,
    ClientEvent,
    EngineEvent,
    NewId,
    SessionFields,
    Usage,
    decoded_audio,
    encoded_audio,
    to_json,
)
from serve_app.realtime.resample import ENGINE_RATE, OPENAI_RATE, SAMPLE_BYTES, Resampler

BEGIN = to_json({"type": COMMIT})
END = to_json({"type": COMMIT, "final": True})
ITEM = "conversation.item.input_audio_transcription"
RATES = (OPENAI_RATE, ENGINE_RATE)
FORMAT = "session.audio.input.format"


class State(Enum):
    SILENT = auto()
    SPEAKING = auto()
    """The utterance has audio and no commit."""
    FINISHING = auto()
    """Committed; the engine is not done."""
    DISCARDING = auto()
    """Cleared; what the engine still says is dropped."""


class TranscriptionSession:
    """See :class:`~serve_app.realtime.base.Translator`. It is one class because events of both ends
    change one utterance."""

    def __init__(self, model: str | None, new_id: NewId) -> None:
        self.model = model
        self.audio_s = 0.0
        self._id = new_id("sess")
        self._new_id = new_id
        self._rate = OPENAI_RATE
        self._state = State.SILENT
        self._resampler: Resampler | None = None
        self._odd = b""
        self._item = ""
        self._last_item: str | None = None
        self._has_text = False

    @property
    def must_wait(self) -> bool:
        return self._state in (State.FINISHING, State.DISCARDING)

    @property
    def is_finishing(self) -> bool:
        return self.must_wait

    @property
    def has_begun(self) -> bool:
        """Audio was sent, or an utterance has ended."""
        return self._state is not State.SILENT or self._last_item is not None

    def created(self, now: int) -> str:
        """The first event to every client; ``id`` and ``created`` (Unix seconds) are where vLLM's own clients
        read them."""
        event = {"type": "session.created", "event_id": self._new_id("event"), "session": self._session()}
        return to_json({**event, "id": self._id, "created": now})

    # ---- the client's events ----

    def client(self, event: ClientEvent) -> Step:
        match event.type:
            case "session.update":
                return self._update(event.session)
            case "input_audio_buffer.append":
                return self._append(event)
            case "input_audio_buffer.commit":
                return self._commit()
            case "input_audio_buffer.clear":
                return self._clear()
        raise BadRequest(
            f"`{event.type[:64]}` is not known here: this endpoint transcribes, and takes {UPDATE}, "
            f"{APPEND}, {COMMIT} and {CLEAR}.",
            param="type",
            code="unknown_event",
        )

    def _update(self, session: SessionFields | None) -> Step:
        if session is None:
            raise BadRequest("`session` is missing.", param="session", code="invalid_event")
        rate, model = self._checked(session)
        if rate != self._rate and self._state is State.SPEAKING:
            raise BadRequest(
                "The rate cannot change within an utterance.", param=FORMAT, code="invalid_event"
            )
        self._rate, self.model = rate, model
        updated = {"type": "session.updated", "event_id": self._new_id("event"), "session": self._session()}
        return Step(to_client=(to_json(updated),))

    def _checked(self, session: SessionFields) -> tuple[int, str | None]:
        """The rate and the model that the session has then. Raises: BadRequest."""
        if session.type != "transcription":
            raise _wrong(
                "session.type", "expected `transcription`: this endpoint writes down speech, and says nothing"
            )
        if session.include:
            raise _wrong("session.include", "vLLM gives no log-probabilities here")
        given = None if session.audio is None else session.audio.input
        if given is None:
            return self._rate, self.model
        if given.turn_detection is not None:
            raise _wrong(
                "session.audio.input.turn_detection",
                f"expected `null`: vLLM does not detect turns; send `{COMMIT}` at their end",
            )
        model = self.model
        if given.transcription is not None and given.transcription.model is not None:
            model = given.transcription.model
            if self.model is not None and model != self.model:
                raise _wrong(
                    "session.audio.input.transcription.model",
                    f"the session's model is {self.model[:100]!r} and cannot change",
                )
        if given.format is None:
            return self._rate, model
        rate = given.format.rate or OPENAI_RATE
        if given.format.type != "audio/pcm" or rate not in RATES:
            raise _wrong(FORMAT, "expected `audio/pcm` with a rate of 24000 or 16000")
        return rate, model

    def _append(self, event: ClientEvent) -> Step:
        if self.model is None:
            raise BadRequest(
                "Name the model first: `?model=`, or `session.audio.input.transcription.model` in a "
                "`session.update`.",
                param="model",
                code="model_missing",
            )
        pcm = self._odd + decoded_audio(event)
        whole = len(pcm) - len(pcm) % SAMPLE_BYTES
        pcm, self._odd = pcm[:whole], pcm[whole:]
        begins = self._state is State.SILENT
        if begins:
            self._begin()
        self.audio_s += len(pcm) / (SAMPLE_BYTES * self._rate)
        audio = pcm if self._resampler is None else self._resampler.feed(pcm)
        sent = (encoded_audio(audio),) if audio else ()
        return Step(to_engine=(BEGIN, *sent) if begins else sent, mark=Mark.BEGAN if begins else None)

    def _begin(self) -> None:
        self._state = State.SPEAKING
        self._resampler = None if self._rate == ENGINE_RATE else Resampler()
        self._item = self._new_id("item")
        self._has_text = False
        self.audio_s = 0.0

    def _commit(self) -> Step:
        if self._state is not State.SPEAKING:
            raise BadRequest(
                "There is no audio to commit.", param="type", code="input_audio_buffer_commit_empty"
            )
        self._state = State.FINISHING
        return Step((self._committed(),), self._ending(), Mark.COMMITTED)

    def _clear(self) -> Step:
        cleared = to_json({"type": "input_audio_buffer.cleared", "event_id": self._new_id("event")})
        if self._state is not State.SPEAKING:
            return Step(to_client=(cleared,))
        self._state = State.DISCARDING
        return Step((cleared,), self._ending())

    def _ending(self) -> tuple[str, ...]:
        rest = b"" if self._resampler is None else self._resampler.rest()
        self._odd = b""
        return (encoded_audio(rest), END) if rest else (END,)

    # ---- the engine's events ----

    def engine(self, event: EngineEvent, message: str) -> Step:
        if event.type == DELTA:
            return self._delta(event.delta)
        if event.type == DONE:
            return self._done(event)
        return NOTHING

    def _delta(self, delta: str) -> Step:
        if not delta or self._state not in (State.SPEAKING, State.FINISHING):
            return NOTHING
        first, self._has_text = not self._has_text, True
        return Step((self._of_item("delta", delta=delta),), mark=Mark.TEXT if first else None)

    def _done(self, event: EngineEvent) -> Step:
        before, self._state = self._state, State.SILENT
        if before in (State.SILENT, State.DISCARDING):
            return NOTHING
        # An engine that stops by itself has committed what it heard.
        committed = (self._committed(),) if before is State.SPEAKING else ()
        usage = event.usage or Usage()
        tokens = {
            "type": "tokens",
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.completion_tokens or 0,
            "total_tokens": usage.total_tokens,
        }
        completed = self._of_item("completed", transcript=event.text, usage=tokens)
        return Step((*committed, completed), mark=Mark.DONE)

    # ---- what the client reads ----

    def _committed(self) -> str:
        previous, self._last_item = self._last_item, self._item
        return to_json(
            {
                "type": "input_audio_buffer.committed",
                "event_id": self._new_id("event"),
                "item_id": self._item,
                "previous_item_id": previous,
            }
        )

    def _of_item(self, name: str, **fields: object) -> str:
        event = {"type": f"{ITEM}.{name}", "event_id": self._new_id("event"), "item_id": self._item}
        return to_json({**event, "content_index": 0, **fields})

    def _session(self) -> dict[str, object]:
        """The configuration that has an effect."""
        heard = {
            "format": {"type": "audio/pcm", "rate": self._rate},
            "transcription": {"model": self.model},
            "noise_reduction": None,
            "turn_detection": None,
        }
        return {
            "id": self._id,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {"input": heard},
        }


def _wrong(param: str, expected: str) -> BadRequest:
    return BadRequest(f"`{param}`: {expected}.", param=param, code="invalid_value")
