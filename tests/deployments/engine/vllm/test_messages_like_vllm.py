"""Messages requests and answers against the handlers of the installed vLLM.

Where ours differ on purpose, the test says so: streams without usage in every chunk, so that they can be
shared and continued, and texts joined as vLLM joins those of a chat.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

from serve_app.dialects.anthropic import InlineSystem, read_messages
from serve_app.dialects.anthropic.stream import MessagesWriter

USER = {"role": "user", "content": "hi"}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
ASKED: dict[str, dict[str, Any]] = {
    "plain": {"system": "be short", "temperature": 0.5, "top_k": 3, "stop_sequences": ["x"]},
    "forced tool": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
    "any tool": {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    "a task": {
        "tools": [TOOL],
        "tool_choice": {"type": "auto"},
        "messages": [
            USER,
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
        ],
    },
    "an image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                    {"type": "text", "text": "what?"},
                ],
            }
        ]
    },
    "effort": {"output_config": {"effort": "low"}},
    "system turns": {
        "system": "be short",
        "messages": [USER, {"role": "system", "content": "late"}, USER],
    },
}
SAMPLING = {"temperature", "top_p", "top_k", "stop", "max_tokens"}
SAME = SAMPLING | {"model", "reasoning_effort", "tools", "tool_choice"}


def messages_of(request: ChatCompletionRequest) -> list[dict[str, Any]]:
    """With arguments as values, whose spaces differ, and without what is empty."""
    messages = json.loads(request.model_dump_json(include={"messages"}))["messages"]
    for message in messages:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return [{name: value for name, value in message.items() if value is not None} for message in messages]


@pytest.mark.parametrize("name", ASKED)
def test_a_request_becomes_the_chat_that_vllm_makes_of_it(name: str) -> None:
    asked = {"model": "m", "max_tokens": 9, "messages": [USER], **ASKED[name]}
    theirs = AnthropicServingMessages.to_chat_completion_request(AnthropicMessagesRequest(**asked))
    ours = ChatCompletionRequest(**read_messages(asked, InlineSystem.SYSTEM).fields)
    assert messages_of(ours) == messages_of(theirs)
    for field in SAME if "tools" in asked else SAME - {"tools", "tool_choice"}:
        mine, expected = (request.model_dump(include={field})[field] or None for request in (ours, theirs))
        assert mine == expected, field


def event(delta: dict[str, Any], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return json.dumps(HEAD | {"choices": [choice]})


HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {
    "prompt_tokens": 9,
    "total_tokens": 12,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 8},
}
STREAM = [
    event({"role": "assistant", "content": ""}),
    event({"reasoning": "hm"}),
    event({"content": "I look."}),
    event({"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f"}}]}),
    event({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]}),
    event({"tool_calls": [{"index": 1, "id": "t2", "type": "function", "function": {"name": "f"}}]}),
    event({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
    event({}, "tool_calls"),
    json.dumps(HEAD | {"choices": [], "usage": USAGE}),
    "[DONE]",
]


async def theirs() -> list[dict[str, Any]]:
    async def chunks() -> AsyncIterator[str]:
        for each in STREAM:
            yield f"data: {each}\n\n"

    reasons = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
    handler: Any = SimpleNamespace(stop_reason_map=reasons)
    convert: Any = AnthropicServingMessages.message_stream_converter
    return [events_of(each)[0] async for each in convert(handler, chunks())]


def events_of(text: str) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")
    ]


def comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Without ids, signatures, the counts of the beginning, and what is empty."""
    event = json.loads(json.dumps(value))
    event.pop("message", None)
    for part in (event.get("delta"), event.get("content_block"), event.get("usage")):
        for name in ("signature", "stop_sequence", "cache_creation_input_tokens"):
            (part or {}).pop(name, None)
    return {name: part for name, part in event.items() if part is not None}


def test_a_stream_becomes_the_events_that_vllm_makes_of_it() -> None:
    writer = MessagesWriter("r", 0)
    written = writer.feed("".join(f"data: {each}\n\n" for each in STREAM).encode()) + writer.rest()
    ours = [each for each in events_of(written.decode()) if each["type"] != "ping"]
    assert [*map(comparable, ours)] == [*map(comparable, asyncio.run(theirs()))]
