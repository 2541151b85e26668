"""The events of vLLM 0.29's streams as bytes: matched by their exact layout, and written in the same layout.

vLLM writes compact JSON with a fixed order of keys. So one regular expression per kind recognises a plain
chunk and extracts its parts without decoding them: a text keeps the exact bytes that the engine wrote. An
event that does not match completely has a meaning that this module does not understand. Decoding to typed
structs and encoding again (msgspec) gave the same bytes in the same time, and took longer to reject chunks
with log-probabilities or tool calls (``docs/benchmarks.md``), so the expressions stayed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from serve_app.openai import sse
from serve_app.openai.requests import Endpoint

ERROR_START = b'data: {"error"'
COMMENT_START = b":"
DONE_EVENT = sse.event(sse.DONE)
NO_TEXT = b'""'
NULL = b"null"
BROKEN_OFF = frozenset({b'"abort"', b'"error"'})
"""Finish reasons that mean that the engine ended, not the answer."""

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_HEAD = rf'(?P<head>data: \{{"id":{_STRING},"object":{_STRING},"created":\d++,"model":{_STRING},"choices":\[)'
_FINISH = r'(?P<finish>"\w++")'
_STOP = rf'"stop_reason":(?P<stop>null|\d++|{_STRING})'
_PROMPT_IDS = r'"prompt_token_ids":(?:\[(?P<prompt>[\d,]*+)\]|null)'
_TOKEN_IDS = r'"token_ids":(?:\[(?P<ids>[\d,]*+)\]|null)'
_FINGERPRINT = rf'(?P<tail>(?:,"system_fingerprint":{_STRING})?)'


def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


TOKENS = {
    Endpoint.CHAT: _compiled(
        rf'{_HEAD}\{{"index":0,"delta":\{{(?:"content":(?P<text>{_STRING}))?\}},"logprobs":null,'
        rf'"finish_reason":(?:null|{_FINISH},{_STOP}),{_TOKEN_IDS}\}}\]{_FINGERPRINT}\}}\n\n'
    ),
    Endpoint.COMPLETIONS: _compiled(
        rf'{_HEAD}\{{"index":0,"text":(?P<text>{_STRING}),"logprobs":null,'
        rf'"finish_reason":(?:null|{_FINISH}),{_STOP},{_PROMPT_IDS},{_TOKEN_IDS}\}}\]{_FINGERPRINT}\}}\n\n'
    ),
}
"""A chunk of one plain answer. ``text`` is missing if a parser of the engine held it back, ``finish``
before the end; ``tail`` is what follows the choice."""

_SOME_TEXT = rf'(?!""){_STRING}'

PLAIN = {
    Endpoint.CHAT: _compiled(
        rf'\{{"index":0,"delta":\{{"content":{_SOME_TEXT}\}},"logprobs":null,'
        rf'"finish_reason":null,"token_ids":\[(?P<ids>[\d,]++)\]\}}\]{_FINGERPRINT}\}}\n\n\Z'
    ),
    Endpoint.COMPLETIONS: _compiled(
        rf'\{{"index":0,"text":{_SOME_TEXT},"logprobs":null,"finish_reason":null,"stop_reason":null,'
        rf'"prompt_token_ids":null,"token_ids":\[(?P<ids>[\d,]++)\]\}}\]{_FINGERPRINT}\}}\n\n\Z'
    ),
}
"""What follows the head in nearly every chunk: some text, and neither an end nor anything else. It is matched
apart because the head, which is the same in all of them, is half of what there is to match."""

CHOICE = _compiled(
    rf'{_HEAD}(?P<choice>\{{"index":0,"delta":[^\n]*"logprobs":null,"finish_reason":)'
    rf"(?P<reason>null|{_FINISH},{_STOP}),{_TOKEN_IDS}\}}\]{_FINGERPRINT}\}}\n\n"
)
"""A chunk of any chat, whatever it says: text, reasoning, calls of tools."""

HELD_BACK = b'{"index":0,"delta":{},'
"""The beginning of a choice that says nothing: a parser of the engine waits for more."""

ROLE = _compiled(
    rf'{_HEAD}(?P<choice>\{{"index":0,"delta":\{{"role":{_STRING},"content":""\}},"logprobs":null,'
    rf'"finish_reason":null\}})\],{_PROMPT_IDS},"prompt_text":null\}}\n\n'
)
"""The first event of a chat."""

USAGE = _compiled(rf'{_HEAD}\],"usage":\{{.*\}}{_FINGERPRINT}(?:,"metrics":.*)?\}}\n\n')
"""The last event before ``[DONE]``, if usage was requested."""


class Chunk(NamedTuple):
    """The contents of a text chunk, as JSON."""

    text: bytes | None
    finish: bytes | None = None
    stop: bytes | None = None
    tail: bytes = b""


def chat_event(head: bytes, chunk: Chunk) -> bytes:
    """``chunk`` as vLLM writes it when token ids were not requested."""
    text, finish, stop, tail = chunk
    delta = b"{}" if text is None else b'{"content":%b}' % text
    reason = NULL if finish is None else b'%b,"stop_reason":%b' % (finish, stop or NULL)
    return b'%b{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b,"token_ids":null}]%b}\n\n' % (
        head,
        delta,
        reason,
        tail,
    )


def text_event(head: bytes, chunk: Chunk) -> bytes:
    """The same as :func:`chat_event`, for a text completion."""
    text, finish, stop, tail = chunk
    return (
        b'%b{"index":0,"text":%b,"logprobs":null,"finish_reason":%b,"stop_reason":%b,'
        b'"prompt_token_ids":null,"token_ids":null}]%b}\n\n'
        % (head, text or NO_TEXT, finish or NULL, stop or NULL, tail)
    )


TOKEN_EVENT = {Endpoint.CHAT: chat_event, Endpoint.COMPLETIONS: text_event}


def without_ids(event: bytes, plain: re.Match[bytes]) -> bytes:
    """The event, of which ``plain`` matched what follows the head, as vLLM writes it when token ids were not
    requested."""
    first, last = plain.span(1)
    return b"%bnull%b" % (event[: first - 1], event[last + 1 :])


def choice_event(head: bytes, choice: bytes, reason: bytes, tail: bytes) -> bytes:
    """A chunk of any chat as vLLM writes it when token ids were not requested."""
    return b'%b%b%b,"token_ids":null}]%b}\n\n' % (head, choice, reason, tail)


def role_event(head: bytes, choice: bytes) -> bytes:
    return b'%b%b],"prompt_token_ids":null,"prompt_text":null}\n\n' % (head, choice)


def with_head(head: bytes, event: bytes, old: bytes) -> bytes:
    """``event``, which begins with the head ``old``, with another one."""
    return head + event[len(old) :]


def usage_event(head: bytes, prompt_tokens: int, completion_tokens: int, tail: bytes) -> bytes:
    usage = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
    return b'%b],"usage":%b%b}\n\n' % (head, msgspec.json.encode(usage), tail)


def without_token_ids(event: bytes) -> bytes:
    """An event of another layout, as it would be had token ids not been requested; empty if it would not have
    been sent at all."""
    if b'token_ids":[' not in event:
        return event
    value = msgspec.json.decode(event.removeprefix(b"data: "))
    for part in (value, *value["choices"]):
        part |= {name: None for name in ("prompt_token_ids", "token_ids") if name in part}
    if all(choice.get("delta") == {} and not choice.get("finish_reason") for choice in value["choices"]):
        return b""
    return sse.json_event(value)
