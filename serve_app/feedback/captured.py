"""A captured request with its answer: what is kept of it, whether it is captured at all, and how it is
redacted."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from serve_app.feedback.values import Judged
from serve_app.openai.answers import UNREADABLE
from serve_app.openai.sse import DONE, iter_data

HASHES = 2**32
LEFT_OUT = frozenset({"cache_salt", "priority", "user", "safety_identifier", "metadata"})
"""Fields of a request that are not its task."""

Redact = Callable[[str], str]


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``request``: the fields that were sent to the model; ``text`` and ``tool_calls``: its first choice.
    ``complete``: the answer came to its end."""

    request: dict[str, Any]
    text: str = ""
    tool_calls: list[dict[str, Any]] = []
    finish_reason: str | None = None
    complete: bool = True

    @property
    def question(self) -> str:
        """The text of the user's last message, or the prompt."""
        messages = self.request.get("messages")
        if not isinstance(messages, list):
            return str(self.request.get("prompt") or "")
        said: dict[str, Any] = next((each for each in reversed(messages) if each.get("role") == "user"), {})
        content = said.get("content")
        if isinstance(content, list):
            return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
        return str(content or "")


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """``content``: a ``Content`` in MessagePack. ``at``: when the request arrived, Unix seconds. ``request``:
    what else is known of it, once it is. ``number`` grows."""

    tenant: str
    request_id: str
    at: float
    endpoint: str
    model: str
    content: bytes
    request: Judged | None = None
    number: int = 0


class CaptureQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page, the oldest first, of what is younger than the number ``after``; or ``newest``: those."""

    tenant: str | None = None
    model: str | None = None
    after: int = 0
    limit: int = 100
    newest: bool = False


class CapturePage(msgspec.Struct, frozen=True):
    """``following``: behind which number the next page begins; ``None`` on the last."""

    captures: tuple[Capture, ...]
    following: int | None = None


class CaptureReply(msgspec.Struct, frozen=True):
    """``full``: there is no room, so nothing of it was kept."""

    full: bool = False


def is_drawn(name: str, share: float) -> bool:
    """Whether this one is among the share. ``name``: of a session, so that conversations are captured whole,
    else of the request."""
    return share >= 1 or zlib.crc32(name.encode()) < share * HASHES


def content_of(
    request: Mapping[str, Any], parts: Iterable[bytes], *, streamed: bool, complete: bool
) -> Content:
    """The content of a request's fields and its answer's bytes, which may be cut.

    Raises:
        ValueError: the answer is of another form.
    """
    body = b"".join(parts)
    fields = {name: value for name, value in request.items() if name not in LEFT_OUT}
    try:
        said = _said_in(iter_data(body)) if streamed else _whole(msgspec.json.decode(body))
    except (*UNREADABLE, IndexError) as error:
        raise ValueError(f"no answer that can be kept: {type(error).__name__}") from None
    text, calls, reason = said
    return Content(request=fields, text=text, tool_calls=calls, finish_reason=reason, complete=complete)


def redacted(content: Content, redact: Redact) -> Content:
    """The content with every text changed, wherever it is: messages, prompts, tools, arguments, the
    answer."""
    return Content(
        request={
            name: value if name == "model" else _redacted(value, redact)
            for name, value in content.request.items()
        },
        text=redact(content.text),
        tool_calls=[_redacted(call, redact) for call in content.tool_calls],
        finish_reason=content.finish_reason,
        complete=content.complete,
    )


def _redacted(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(each, redact) for each in value]
    if isinstance(value, dict):
        return {name: each if name in ROLES else _redacted(each, redact) for name, each in value.items()}
    return value


ROLES = frozenset({"role", "type"})
"""Names whose values are words of the API."""


def _whole(response: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]], str | None]:
    choice = response["choices"][0]
    message = choice.get("message") or {}
    text = choice.get("text") or message.get("content") or ""
    return str(text), list(message.get("tool_calls") or []), choice.get("finish_reason")


def _said_in(events: Iterable[bytes]) -> tuple[str, list[dict[str, Any]], str | None]:
    texts: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    reason: str | None = None
    for event in events:
        if event == DONE:
            break
        for choice in msgspec.json.decode(event).get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            texts.append(choice.get("text") or delta.get("content") or "")
            for piece in delta.get("tool_calls") or ():
                _add(calls, piece)
            reason = choice.get("finish_reason") or reason
    return "".join(texts), [calls[index] for index in sorted(calls)], reason


def _add(calls: dict[int, dict[str, Any]], piece: Mapping[str, Any]) -> None:
    call = calls.setdefault(
        int(piece.get("index", 0)), {"type": "function", "function": {"name": "", "arguments": ""}}
    )
    if piece.get("id"):
        call["id"] = piece["id"]
    function = piece.get("function") or {}
    for name in ("name", "arguments"):
        call["function"][name] += function.get(name) or ""
