"""An answer on its way from the gateway that has it to another one: frames of a kind, a length and bytes.

HTTP's own end of a body is no sign that an answer is whole: a frame is.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import msgspec

from serve_app.errors import ErrorDetails, PromptlyError, UpstreamRefused

T = TypeVar("T")

LENGTH = 4
HEAD = 1 + LENGTH
MOST_BYTES = 1 << 30
"""Largest frame; answers are bounded long before (``limits.max_answer_bytes``)."""


class Kind(IntEnum):
    ACCEPTED = 1
    """The request is joined; its head follows once the answer has begun."""
    HEAD = 2
    DATA = 3
    FAILED = 4
    """The answer failed, for everyone who reads it."""
    END = 5
    WAITING = 6
    """A sign of life."""


class BadFrame(ValueError):
    """Bytes are no frame: the other end has another version."""


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(LENGTH) + payload


class Frames:
    """Reads frames out of bytes that come in pieces."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """The frames that are whole now. Raises: BadFrame."""
        data, found, at = self._buffer + data, [], 0
        while len(data) - at >= HEAD:
            length = int.from_bytes(data[at + 1 : at + HEAD])
            if length > MOST_BYTES:
                raise BadFrame(f"a frame of {length} bytes")
            if len(data) - at - HEAD < length:
                break
            try:
                kind = Kind(data[at])
            except ValueError as error:
                raise BadFrame(str(error)) from error
            found.append((kind, data[at + HEAD : at + HEAD + length]))
            at += HEAD + length
        self._buffer = data[at:]
        return found


class _Failure(msgspec.Struct, frozen=True):
    status: int
    said: ErrorDetails
    headers: dict[str, str]
    should_retry: bool | None


def failed(error: PromptlyError) -> bytes:
    """Why the answer failed, as the clients of its own gateway learn it."""
    sent = _Failure(error.status, error.details, dict(error.headers), error.should_retry)
    return frame(Kind.FAILED, msgspec.msgpack.encode(sent))


def failure(payload: bytes) -> PromptlyError:
    """The same error here. Raises: BadFrame."""
    sent = _read(payload, _Failure)
    error = UpstreamRefused(sent.status, sent.said, sent.headers)
    error.should_retry = sent.should_retry
    return error


def begun(head: object) -> bytes:
    """``head``: a dataclass of plain values."""
    return frame(Kind.HEAD, msgspec.msgpack.encode(head))


def head_of(payload: bytes, kind: type[T]) -> T:
    """Raises: BadFrame."""
    return _read(payload, kind)


def _read(payload: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except msgspec.DecodeError as error:
        raise BadFrame(str(error)) from error
