"""The tool calls of a stream, in the order in which their blocks come: one block is open at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from serve_app.dialects.anthropic.answer import input_of, own_id
from serve_app.errors import UpstreamFailed
from serve_app.openai.chunks import ToolCall


@dataclass(slots=True, eq=False)
class Call:
    """``parts``: of its arguments; the first ``sent`` of them went to the client."""

    id: str
    name: str = ""
    parts: list[str] = field(default_factory=list)
    sent: int = 0

    @property
    def is_whole(self) -> bool:
        """Its arguments are complete. The end is looked at first, as most parts are no end."""
        return bool(self.parts) and self.parts[-1].endswith("}") and input_of("".join(self.parts)) is not None

    def unsent(self) -> str:
        text = "".join(self.parts[self.sent :])
        self.sent = len(self.parts)
        return text


Parts = list[tuple[Call, str]]
"""Calls, each with the next of its arguments."""


class Calls:
    """A call that begins while another is not complete waits for that one's end: servers may mix the parts
    of parallel calls."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._calls: dict[int, Call] = {}
        self._to_send: deque[Call] = deque()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, piece: ToolCall) -> Parts:
        """Raises: UpstreamFailed: it belongs to a call that was complete."""
        index = self._index_of(piece) if piece.index is None else piece.index
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = Call(piece.id or own_id(self._message_id, index))
            self._to_send.append(call)
        if piece.function is not None:
            call.name = call.name or piece.function.name or ""
            if piece.function.arguments:
                call.parts.append(piece.function.arguments)
        if call not in self._to_send:
            if call.unsent().strip():
                raise UpstreamFailed("The engine goes on with a complete tool call.", code="upstream_failed")
            return []
        return self._next()

    def rest(self) -> Parts:
        """Those that were never complete. Raises: UpstreamFailed: one has no name."""
        left, self._to_send = self._to_send, deque()
        if not all(call.name for call in left):
            raise UpstreamFailed("The engine's tool call has no name.", code="upstream_failed")
        return [(call, call.unsent()) for call in left]

    def _next(self) -> Parts:
        found: Parts = []
        while self._to_send and self._to_send[0].name:
            first = self._to_send[0]
            found.append((first, first.unsent()))
            if len(self._to_send) == 1 or not first.is_whole:
                break
            self._to_send.popleft()
        return found

    def _index_of(self, piece: ToolCall) -> int:
        """The index of a call from a server that does not number its calls: another id begins another
        call."""
        last = max(self._calls, default=-1)
        if last >= 0 and piece.id in (None, self._calls[last].id):
            return last
        return last + 1
