"""Cuts a stream into its events."""

from __future__ import annotations

import re
from collections.abc import Callable

from serve_app.openai import sse

Match = Callable[[bytes, int], re.Match[bytes] | None]


class EventStream:
    """Passes the events of one answer on. Subclasses say what becomes of each."""

    def __init__(self, match: Match) -> None:
        self.done = False
        """``[DONE]`` was passed on: the stream is complete."""
        self.failure: bytes | None = None
        """The engine's own error event (JSON). Neither it nor anything after it is passed on."""
        self._match = match
        self._partial = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take in the engine's bytes; returns whole events for the client, as if token ids had not been
        requested and one engine had sent them all."""
        if self._partial and b"\n" not in chunk:  # do not search a long event again for every piece
            self._partial += chunk
            return b""
        data = self._partial + chunk if self._partial else chunk
        passed: list[bytes] = []
        position = 0
        while position < len(data) and self.failure is None:
            match = self._match(data, position)
            if match is not None:
                passed.append(self._pass_tokens(match))
                position = match.end()
                continue
            end = data.find(sse.END, position)
            if end < 0:
                break
            passed.append(self._pass_other(data[position : end + len(sse.END)]))
            position = end + len(sse.END)
        self._partial = data[position:]
        return b"".join(passed)

    def forget_the_rest(self) -> None:
        """What the lost engine left must not mix with the next engine's bytes."""
        self.failure = None
        self._partial = b""

    def _fail(self, event: bytes) -> bytes:
        self.failure = event.removeprefix(b"data:").strip()
        return b""

    def _pass_tokens(self, match: re.Match[bytes]) -> bytes:
        """An event with tokens: every token passes through here."""
        raise NotImplementedError

    def _pass_other(self, event: bytes) -> bytes:
        raise NotImplementedError
