"""Chat answers as values, for what must look inside them: the writers of dialects.

Only the fields that are read have types; a server may send more, and leave out what is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from serve_app.errors import UpstreamFailed
from serve_app.openai import sse
from serve_app.openai.upstream_errors import FAILED

T = TypeVar("T")


class TokenDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class ChatUsage(msgspec.Struct, frozen=True):
    """``prompt_tokens`` includes those found in the engine's prefix cache (``prompt_tokens_details``)."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None

    @property
    def cached_tokens(self) -> int:
        details = self.prompt_tokens_details
        return 0 if details is None else details.cached_tokens or 0


class Function(msgspec.Struct, frozen=True):
    """A call's function in a stream: ``arguments`` is a part of the JSON text."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A part, in a stream, of the call number ``index``; only its first part has an id and a name. Some
    servers leave fields out, or write ``null``."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Said(msgspec.Struct, frozen=True):
    """A message, or the part of one that a chunk brings. vLLM writes ``reasoning``, other servers
    ``reasoning_content``."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def thought(self) -> str | None:
        return self.reasoning or self.reasoning_content

    @property
    def text(self) -> str | None:
        return self.content or self.refusal


class ChunkChoice(msgspec.Struct, frozen=True):
    """``stop_reason`` is vLLM's: the stop text, or the id of the stop token."""

    delta: Said | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class Chunk(msgspec.Struct, frozen=True):
    """One event of a stream."""

    error: Any = None
    model: str | None = None
    choices: list[ChunkChoice] | None = None
    usage: ChatUsage | None = None


class WholeChoice(msgspec.Struct, frozen=True):
    message: Said
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class WholeChat(msgspec.Struct, frozen=True):
    """An answer that is not streamed."""

    choices: list[WholeChoice]
    error: Any = None
    model: str | None = None
    usage: ChatUsage | None = None


_chunk = msgspec.json.Decoder(Chunk)
_whole = msgspec.json.Decoder(WholeChat)


def read_chunk(data: bytes) -> Chunk:
    """The chunk in an event's data. Raises: UpstreamFailed: it is no chunk of a chat, or tells of a
    failure."""
    chunk = _read(_chunk, data)
    refuse_failed(chunk.error, chunk.choices)
    return chunk


def read_whole(body: bytes) -> WholeChat:
    """Raises: UpstreamFailed: it is no chat completion, has no choice, or tells of a failure."""
    whole = _read(_whole, body)
    refuse_failed(whole.error, whole.choices)
    if not whole.choices:
        raise UpstreamFailed("The engine's answer has no choice.", code="upstream_failed")
    return whole


def _read(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UpstreamFailed("The engine's answer is no chat completion.", code="upstream_failed") from None


class Ended(Protocol):
    @property
    def finish_reason(self) -> str | None: ...


def refuse_failed(error: object, choices: Sequence[Ended] | None) -> None:
    """An answer that failed is no shorter answer.

    Raises:
        UpstreamFailed: there is an ``error``, or a choice ended because of one.
    """
    if error or (choices and choices[0].finish_reason == FAILED):
        raise UpstreamFailed("The engine failed.", code="upstream_failed")


class StreamData:
    """The data of each event, from a stream that comes in pieces split anywhere."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that ``piece`` completes, ``[DONE]`` included."""
        if self._partial:
            if b"\n" not in piece:  # do not search a long event again for every piece
                self._partial += piece
                return []
            piece = self._partial + piece
        if piece.endswith(sse.ENDS):
            self._partial = b""
            return list(sse.iter_data(piece))
        end = max((piece.rfind(each) + len(each) for each in sse.ENDS if each in piece), default=0)
        self._partial = piece[end:]
        return list(sse.iter_data(piece[:end]))
