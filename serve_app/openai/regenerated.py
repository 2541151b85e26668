"""A stream that is generated once more from its beginning, without what its clients have already.

The answer's gateway is gone, and with it the token ids that a continuation needs. Requests that others may
join are answered alike each time (they are cacheable), so the second answer begins with the text of the first
one. If it does not, the stream ends with an error: clients never get a text that no engine wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from serve_app.errors import UpstreamFailed
from serve_app.openai import sse

TEXT = "text"
"""The field of a text completion's choice; a chat's are in its ``delta``."""

ROLE = "role"


class Regenerated:
    """``sent``: the stream's bytes so far, whole events. The rest of the stream keeps their id and time."""

    def __init__(self, sent: Iterable[bytes]) -> None:
        self._left: dict[str, str] = {}
        self._head: dict[str, Any] = {}
        self._has_finished = self._has_usage = False
        self._rest = b""
        self.is_done = False
        """The whole answer has been sent already."""
        for data in sse.iter_data(b"".join(sent)):
            self._note(data)

    def _note(self, data: bytes) -> None:
        if data == sse.DONE:
            self.is_done = True
            return
        event = _decoded(data)
        self._head = self._head or {name: event[name] for name in ("id", "created") if name in event}
        for choice in event.get("choices") or ():
            self._has_finished |= choice.get("finish_reason") is not None
            for name, text in _texts(choice).items():
                self._left[name] = self._left.get(name, "") + text
        self._has_usage |= not event.get("choices")

    def feed(self, chunk: bytes) -> bytes:
        """What of a piece of the second stream is new.

        Raises:
            UpstreamFailed: it says something else than the first one did.
        """
        self._rest += chunk
        *events, self._rest = sse.EVENT_END.split(self._rest)
        return b"".join(self._passed(data) for event in events for data in sse.iter_data(event))

    def _passed(self, data: bytes) -> bytes:
        if data == sse.DONE:
            self._require_nothing_left()
            return sse.event(data)
        event = _decoded(data)
        choices = event.get("choices") or ()
        if not choices:
            return b"" if self._has_usage else sse.json_event(event | self._head)
        is_new = False
        for choice in choices:
            is_new |= self._shorten(choice)
        return sse.json_event(event | self._head) if is_new else b""

    def _shorten(self, choice: dict[str, Any]) -> bool:
        """Take away what was sent. Returns whether something is left."""
        holder = choice if TEXT in choice else choice.get("delta") or {}
        is_new = False
        for name, text in _texts(choice).items():
            left = self._left.get(name, "")
            common = min(len(left), len(text))
            if left[:common] != text[:common]:
                raise _differs()
            self._left[name] = left[common:]
            holder[name] = text[common:]
            is_new |= common < len(text)
        if choice.get("finish_reason") is not None:
            self._require_nothing_left()
            is_new |= not self._has_finished
        return is_new

    def _require_nothing_left(self) -> None:
        if any(self._left.values()):
            raise _differs()


def _texts(choice: dict[str, Any]) -> dict[str, str]:
    holder = {TEXT: choice[TEXT]} if TEXT in choice else choice.get("delta") or {}
    return {name: text for name, text in holder.items() if isinstance(text, str) and text and name != ROLE}


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UpstreamFailed("The engine's stream cannot be read.", code="upstream_failed") from error
    return event


def _differs() -> UpstreamFailed:
    return UpstreamFailed(
        "The answer's gateway was lost, and a second answer differs from the first.", code="upstream_failed"
    )
