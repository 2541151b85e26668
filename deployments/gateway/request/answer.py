"""What a client is served: an engine's answer, a place in one that is shared, or one out of the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of an answer before its bytes. ``is_stream``: its bytes come over time, so each is passed
    on at once; any other answer is sent whole."""

    status: int
    content_type: str
    is_stream: bool
    served_by: str


class Answer(Protocol):
    """One client's answer."""

    async def begin(self) -> Head:
        """Returns when the first bytes are there. Raises what opening the answer raised."""
        ...

    async def read(self) -> bytes:
        """The next bytes; ``b""`` at the end. It may be cancelled without losing any.

        Raises:
            UpstreamFailed: the answer ended too early and could not be continued.
            SlowReader: the client is too far behind the other readers of this answer.
        """
        ...

    def close(self) -> None:
        """The client reads no more. May be called again."""
        ...


class LiveAnswer(Answer, Protocol):
    """An engine's answer whose first bytes are there."""

    @property
    def head(self) -> Head: ...
