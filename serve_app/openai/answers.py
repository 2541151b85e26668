"""One finished answer, independent of whether it was streamed.

It is read from an engine's bytes when the answer is complete; ``serve_app.openai.replay`` writes it as JSON
or as a stream. An answer with content that this value cannot hold is not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from serve_app.openai.requests import Endpoint
from serve_app.openai.sse import DONE, iter_data

UNREADABLE = (msgspec.DecodeError, AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Errors from reading a response of an unexpected form; such a response is not stored."""

TEXT_ONLY_MESSAGE = frozenset({"role", "content"})
"""The parts of a chat message that a replay can reproduce."""


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Answer(msgspec.Struct, frozen=True):
    """Text, usage (tokens) and the model that answered. ``stop_reason`` is vLLM's (a stop text or token)."""

    model: str
    text: str
    usage: Usage
    stop_reason: str | int | None = None
    system_fingerprint: str | None = None


def encode_answer(answer: Answer) -> bytes:
    return msgspec.json.encode(answer)


def decode_answer(data: bytes | str) -> Answer:
    return msgspec.json.decode(data, type=Answer)


def answer_from_json(endpoint: Endpoint, body: bytes) -> Answer | None:
    """The answer in a complete JSON response; ``None`` if it cannot be replayed."""
    try:
        response = msgspec.json.decode(body)
        (choice,) = response["choices"]
        text = _text_of(endpoint, choice, "message")
        if text is None or choice["finish_reason"] != "stop":
            return None
        return _answer(response, choice, text, response["usage"])
    except UNREADABLE:
        return None


def answer_from_stream(endpoint: Endpoint, chunks: Iterable[bytes]) -> Answer | None:
    """The answer in a complete SSE stream (``[DONE]`` seen, ``finish_reason`` stop, usage present)."""
    try:
        return _read_stream(endpoint, list(iter_data(b"".join(chunks))))
    except UNREADABLE:
        return None


def _read_stream(endpoint: Endpoint, events: list[bytes]) -> Answer | None:
    if not events or events[-1] != DONE:
        return None
    texts: list[str] = []
    last_choice: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None
    response: Mapping[str, Any] = {}
    for event in events[:-1]:
        response = msgspec.json.decode(event)
        usage = response.get("usage") or usage
        for choice in response["choices"]:
            piece = _text_of(endpoint, choice, "delta")
            if piece is None:
                return None
            texts.append(piece)
            last_choice = choice
    if usage is None or last_choice is None or last_choice.get("finish_reason") != "stop":
        return None
    return _answer(response, last_choice, "".join(texts), usage)


def _text_of(endpoint: Endpoint, choice: Mapping[str, Any], part: str) -> str | None:
    """The choice's text; ``None`` if it holds more than text (tool calls, reasoning, logprobs, …)."""
    if choice.get("index", 0) != 0 or choice.get("logprobs") is not None:
        return None
    if endpoint is Endpoint.COMPLETIONS:
        return _only_text(choice["text"])
    message = choice[part]
    if any(value for name, value in message.items() if name not in TEXT_ONLY_MESSAGE):
        return None
    content = message.get("content")
    return "" if content is None else _only_text(content)


def _only_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _answer(
    response: Mapping[str, Any], choice: Mapping[str, Any], text: str, usage: Mapping[str, Any]
) -> Answer:
    return Answer(
        model=response["model"],
        text=text,
        usage=msgspec.convert({name: usage[name] for name in Usage.__struct_fields__}, Usage),
        stop_reason=choice.get("stop_reason"),
        system_fingerprint=response.get("system_fingerprint"),
    )
