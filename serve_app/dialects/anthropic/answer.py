"""A whole answer as a message, and what streamed and whole answers share."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.dialects.hidden import hidden_reasoning
from serve_app.errors import UpstreamFailed
from serve_app.openai.chunks import ChatUsage, Function, Said, read_whole

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def whole_message(body: bytes, message_id: str, *, max_tokens: int | None, omits_thinking: bool) -> bytes:
    """``max_tokens``: what the client asked for; ``omits_thinking``: it wants no thoughts shown.

    Raises:
        UpstreamFailed: it is no chat completion.
    """
    answer = read_whole(body)
    choice = answer.choices[0]
    is_cut = choice.finish_reason == "length"
    content = _content(choice.message, message_id, is_cut=is_cut, omits_thinking=omits_thinking)
    used_tool = any(block["type"] == "tool_use" for block in content)
    return msgspec.json.encode(
        {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": answer.model or "",
            "content": content or [{"type": "text", "text": ""}],
            **stop_fields(
                reason_of(choice.finish_reason, answer.usage, max_tokens),
                choice.stop_reason,
                used_tool=used_tool,
            ),
            "usage": usage_fields(answer.usage),
        }
    )


class Tokenized(msgspec.Struct, frozen=True):
    """vLLM's answer to ``/tokenize``, as far as it is read."""

    count: int


class TokenCount:
    """Writes the answer to ``/v1/messages/count_tokens``, which is never a stream."""

    def whole(self, body: bytes) -> bytes:
        try:
            count = msgspec.json.decode(body, type=Tokenized).count
        except msgspec.DecodeError:
            raise UpstreamFailed("The engine cannot count tokens.", code="upstream_failed") from None
        return msgspec.json.encode({"input_tokens": count})

    def feed(self, chunk: bytes) -> bytes:
        raise UpstreamFailed("The engine cannot count tokens.", code="upstream_failed")

    def rest(self) -> bytes:
        return b""


def reason_of(reason: str | None, usage: ChatUsage | None, max_tokens: int | None) -> str | None:
    """An answer that was cut before the client's own limit met the end of the context (``context``)."""
    generated = None if usage is None else usage.completion_tokens
    if reason == "length" and generated is not None and max_tokens is not None and generated < max_tokens:
        return "context"
    return reason


def stop_fields(reason: str | None, stop: str | int | None, *, used_tool: bool) -> dict[str, str | None]:
    """Why the answer ended. ``stop`` is the stop text that vLLM names; a token's number is no text. A tool
    that the request forced ends with ``stop`` in a chat, and with ``tool_use`` here."""
    if reason == "stop" and used_tool:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if reason == "stop" and isinstance(stop, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": STOP_REASONS.get(reason or "stop", "end_turn"), "stop_sequence": None}


def usage_fields(usage: ChatUsage | None) -> dict[str, int]:
    """Anthropic counts the tokens found in a cache apart from ``input_tokens``."""
    known = usage or ChatUsage()
    return {
        "input_tokens": max(0, known.prompt_tokens - known.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": known.cached_tokens,
        "output_tokens": known.completion_tokens or 0,
    }


def own_id(message_id: str, number: int) -> str:
    """An id for a call without one. It differs from turn to turn: a result must find one call only."""
    return f"toolu_{message_id.removeprefix('msg_')}_{number}"


def _content(said: Said, message_id: str, *, is_cut: bool, omits_thinking: bool) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if said.thought:
        shown, signature = said.thought, message_id
        if omits_thinking:
            shown, signature = "", hidden_reasoning(said.thought)
        blocks.append({"type": "thinking", "thinking": shown, "signature": signature})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    for number, call in enumerate(said.tool_calls or ()):
        function = call.function or Function()
        given = input_of(function.arguments)
        if given is None and is_cut:
            continue  # a call that `max_tokens` cut is no call
        call_id = call.id or own_id(message_id, number)
        # What is no object is shown to the client, whose own check tells the model: another try would give
        # the same again.
        given = {"arguments": function.arguments} if given is None else given
        blocks.append({"type": "tool_use", "id": call_id, "name": function.name or "", "input": given})
    return blocks


def input_of(arguments: str | None) -> dict[str, Any] | None:
    """``None``: they are no JSON object."""
    try:
        given = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return given if isinstance(given, dict) else None
