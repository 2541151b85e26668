"""Tool calls through everything, with the small real model: the protocol is right, whatever it answers."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from support.server import MODEL

CITY = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}}
STRICT: dict[str, Any] = CITY | {"required": ["city"], "additionalProperties": False}
CLOCK = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": STRICT, "strict": True}}
TIME = {"type": "function", "function": {"name": "time", "parameters": CLOCK}}
TOOLS: list[Any] = [WEATHER, TIME]
ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
NAMED: Any = {"type": "function", "function": {"name": "weather"}}


def ask(client: openai.OpenAI, choice: Any, messages: list[Any] = ASKED, **fields: Any) -> Any:
    common: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 96, "tools": TOOLS}
    return client.chat.completions.create(messages=messages, tool_choice=choice, **common | fields)


def is_weather(call: Any) -> bool:
    """The arguments keep to the strict schema."""
    arguments = json.loads(call.function.arguments)
    return set(arguments) == {"city"} and arguments["city"] in ("Paris", "Rome")


def streamed(stream: Any) -> tuple[str, dict[int, dict[str, str]], str]:
    """The text, the calls by index, and why it ended; the fields of a call come in OpenAI's order."""
    text, calls, reason = "", {}, ""
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                if part.id:
                    assert not call["id"]
                    call["id"] = part.id
                if part.function.name:
                    assert not call["arguments"]
                    call["name"] += part.function.name
                call["arguments"] += part.function.arguments or ""
    return text, calls, reason


def test_a_named_function_is_called_with_a_strict_schema(client: openai.OpenAI) -> None:
    choice = ask(client, NAMED).choices[0]
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "weather"
    assert call.id
    assert is_weather(call)
    assert choice.finish_reason in ("stop", "tool_calls")


def test_a_named_function_is_called_in_a_stream(client: openai.OpenAI) -> None:
    _, calls, reason = streamed(ask(client, NAMED, stream=True))
    assert list(calls) == [0]
    assert calls[0]["name"] == "weather"
    assert calls[0]["id"]
    assert json.loads(calls[0]["arguments"])["city"] in ("Paris", "Rome")
    assert reason in ("stop", "tool_calls")


def test_required_makes_at_least_one_call(client: openai.OpenAI) -> None:
    choice = ask(client, "required", max_tokens=400).choices[0]
    if choice.finish_reason == "length":
        pytest.fail("the model did not end its calls")
    assert choice.message.tool_calls
    for call in choice.message.tool_calls:
        assert call.function.name in ("weather", "time")
        assert isinstance(json.loads(call.function.arguments), dict)
    assert len({call.id for call in choice.message.tool_calls}) == len(choice.message.tool_calls)


def test_auto_and_none_answer_in_words_or_calls(client: openai.OpenAI) -> None:
    for choice in ("auto", openai.NOT_GIVEN):
        message = ask(client, choice).choices[0].message
        assert message.content or message.tool_calls
    spoken = ask(client, "none").choices[0]
    assert spoken.message.content
    assert not spoken.message.tool_calls
    text, calls, reason = streamed(ask(client, "auto", stream=True))
    assert text or calls
    assert reason in ("stop", "length", "tool_calls")


def test_what_a_tool_returned_is_read(client: openai.OpenAI) -> None:
    calls = [
        {"id": f"call-{n}", "type": "function", "function": {"name": "weather", "arguments": arguments}}
        for n, arguments in enumerate(('{"city": "Paris"}', '{"city": "Rome"}'))
    ]
    turns = [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call-0", "content": "It rains in Paris."},
        {"role": "tool", "tool_call_id": "call-1", "content": "The sun shines in Rome."},
    ]
    without = ask(client, "none")
    answer = ask(client, "none", turns)
    assert answer.choices[0].message.content
    assert answer.usage.prompt_tokens > without.usage.prompt_tokens


# ---- the model's own calls, which the parser reads ----


def taught(*cities: str) -> list[Any]:
    """The small model calls a tool by itself once it has seen the same question answered so four times."""
    asked = {"role": "user", "content": f"What is the weather in {' and '.join(cities)}?"}
    turns: list[Any] = []
    for turn in range(4):
        ids = {f"call-{turn}-{number}": city for number, city in enumerate(cities)}
        calls = [
            {
                "id": name,
                "type": "function",
                "function": {"name": "weather", "arguments": json.dumps({"city": city})},
            }
            for name, city in ids.items()
        ]
        turns += [asked, {"role": "assistant", "content": None, "tool_calls": calls}]
        turns += [{"role": "tool", "tool_call_id": name, "content": "Sunny."} for name in ids]
        turns.append({"role": "assistant", "content": "Sunny."})
    return [*turns, asked]


@pytest.mark.parametrize("cities", [("Paris",), ("Paris", "Rome")], ids=["one", "two"])
def test_calls_that_the_model_writes_are_read_whole_and_streamed(
    client: openai.OpenAI, cities: tuple[str, ...]
) -> None:
    whole = ask(client, "auto", taught(*cities), tools=[WEATHER]).choices[0]
    assert whole.message.tool_calls, whole.message.content
    assert [json.loads(call.function.arguments)["city"] for call in whole.message.tool_calls] == [*cities]
    assert whole.finish_reason == "tool_calls"
    spoken, calls, reason = streamed(ask(client, "auto", taught(*cities), tools=[WEATHER], stream=True))
    assert [json.loads(call["arguments"])["city"] for call in calls.values()] == [*cities]
    assert list(calls) == list(range(len(cities)))
    assert len({call["id"] for call in calls.values()}) == len(cities)
    assert {call["name"] for call in calls.values()} == {"weather"}
    assert reason == "tool_calls"
    assert "<tool_call>" not in spoken
