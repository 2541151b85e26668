"""A whole answer as a message, and what streamed and whole answers share."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.errors import UpstreamFailed
from serve_app.openai.chunks import ChatUsage, Said, ToolCall, read_whole

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def whole_message(body: bytes, message_id: str) -> bytes:
    """Raises: UpstreamFailed: it is no chat completion, or the input of a tool call is no JSON object."""
    answer = read_whole(body)
    choice = answer.choices[0]
    content = _content(choice.message, message_id, is_cut=choice.finish_reason == "length")
    used_tool = any(block["type"] == "tool_use" for block in content)
    return msgspec.json.encode(
        {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content or [{"type": "text", "text": ""}],
            **stop_fields(choice.finish_reason, choice.stop_reason, used_tool=used_tool),
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
    """For a call without an id. It differs from turn to turn: a result must find one call only."""
    return f"toolu_{message_id.removeprefix('msg_')}_{number}"


def _content(said: Said, signature: str, *, is_cut: bool) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if said.thought:
        blocks.append({"type": "thinking", "thinking": said.thought, "signature": signature})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    for number, call in enumerate(said.tool_calls or ()):
        given = _input(call)
        if given is not None:
            call_id = call.id or own_id(signature, number)
            blocks.append({"type": "tool_use", "id": call_id, "name": call.function.name, "input": given})
        elif not is_cut:  # a call that `max_tokens` cut is no call
            raise UpstreamFailed(
                "The model's tool call has arguments that are no JSON object.", code="tool_call"
            )
    return blocks


def _input(call: ToolCall) -> dict[str, Any] | None:
    try:
        given = msgspec.json.decode(call.function.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return given if isinstance(given, dict) else None
