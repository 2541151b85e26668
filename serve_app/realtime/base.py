"""The contract of a translator: one client's session, between its own events and those of vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from serve_app.realtime.events import ClientEvent, EngineEvent


class Mark(Enum):
    """What a step did to the utterance: the audio up to a commit, and its text."""

    BEGAN = auto()
    TEXT = auto()
    COMMITTED = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """What is sent because of one event, in order."""

    to_client: tuple[str, ...] = ()
    to_engine: tuple[str, ...] = ()
    mark: Mark | None = None


NOTHING = Step()


class Translator(Protocol):
    """No I/O and no clock. ``model`` is the name that the client gave; ``None`` until it has given one.
    ``audio_s`` is the audio of the utterance now, in seconds."""

    model: str | None
    audio_s: float

    @property
    def must_wait(self) -> bool:
        """The engine is not done with the last utterance: vLLM would drop audio that comes now."""
        ...

    @property
    def is_finishing(self) -> bool:
        """The client has said all, and the engine is not done: silence is not the client's."""
        ...

    def client(self, event: ClientEvent) -> Step:
        """Raises: BadRequest: the event is wrong; the session goes on."""
        ...

    def engine(self, event: EngineEvent, message: str) -> Step:
        """``message`` is the event as it came."""
        ...
