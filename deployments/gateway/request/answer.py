"""What a client is sent: an engine's answer, one that it shares with other clients, or a stored one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of an answer before its bytes. ``is_stream``: its bytes come over time, so each is passed
    on at once; any other answer is sent whole. ``asked_usage``: the member was asked to end the stream with
    usage. ``is_measured``: a member generates it while the request runs, so its tokens and times count as the
    request's."""

    status: int
    content_type: str
    is_stream: bool
    served_by: str
    asked_usage: bool = False
    is_measured: bool = True


class OpenAnswer(Protocol):
    """An answer whose first bytes are there."""

    @property
    def head(self) -> Head: ...

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


class Live(ABC):
    """An open answer whose bytes can also be taken in the turn of the event loop in which they arrive,
    without a task that is woken for each."""

    @abstractmethod
    def read_now(self) -> bytes | None:
        """The next bytes if they are there; ``b""``: not yet; ``None``: only ``read`` can tell, as of the
        end, an error, or what needs time."""

    @abstractmethod
    def listen(self, arrived: Callable[[], None]) -> bool:
        """Call ``arrived`` whenever there is something to read, until :meth:`unlisten`. False, and nothing is
        called: there is something already, or another reader waits."""

    @abstractmethod
    def unlisten(self) -> None:
        """May be called again."""


class Continuable(ABC):
    """An open answer that knows its tokens, for an engine that is told them."""

    @property
    @abstractmethod
    def beginning(self) -> Sequence[bytes] | None:
        """The tokens so far in the pieces in which they came, ids as in JSON: the same list as long as it
        grows. ``None``: no engine could be told them, or nothing is left to generate."""


def live(answer: object) -> Live | None:
    return answer if isinstance(answer, Live) else None


class Answer(Protocol):
    """One client's answer."""

    async def begin(self) -> OpenAnswer:
        """Returns when the first bytes are there. Raises what opening the answer raised."""
        ...

    def close(self) -> None:
        """The client waits or reads no more. May be called again."""
        ...


class OwnAnswer:
    """An answer that no other client shares. It opens when it is first asked to begin."""

    def __init__(self, opening: Coroutine[Any, Any, OpenAnswer]) -> None:
        self._opening = opening
        self._open: OpenAnswer | None = None

    async def begin(self) -> OpenAnswer:
        self._open = await self._opening
        return self._open

    def close(self) -> None:
        if self._open is None:
            self._opening.close()
        else:
            self._open.close()
