"""The scripted engine plays a model that uses tools, decided by the conversation alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from sim_engine.examples import example_of
from sim_engine.plan import read_plan
from support.sim import CHAT, FAST, Sim, decoded, events, running

PLAN = [
    {
        "reasoning": "I must look.",
        "text": "I read both.",
        "calls": [
            {"name": "read", "arguments": {"path": "a.txt"}},
            {"name": "read", "arguments": {"path": "b.txt"}},
        ],
    },
    {"calls": [{"name": "write", "arguments": {"path": "a.txt", "text": "häß\n"}}]},
    {"text": "Done."},
]


def tool(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema or {"type": "object"}}}


TOOLS = [tool("read"), tool("write")]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
START = [{"role": "user", "content": "Copy a to b."}]


async def ask(sim: Sim, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    fields = {"tools": TOOLS} | fields
    choice = decoded(await sim.send(CHAT, messages=messages, **fields))["choices"][0]
    return {"finish_reason": choice["finish_reason"]} | choice["message"]


def results(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]]


async def test_a_plan_is_played_to_its_end_over_any_replica() -> None:
    settings = replace(FAST, plan=json.dumps(PLAN))
    messages, said = list(START), []
    async with running(settings) as one, running(settings) as other:
        for sim in (one, other, one, other):
            message = await ask(sim, messages)
            said.append(message)
            messages += [message, *(results(message) if "tool_calls" in message else [])]
    first, second, third, fourth = said
    assert (first["content"], first["reasoning"]) == ("I read both.", "I must look.")
    assert [json.loads(call["function"]["arguments"])["path"] for call in first["tool_calls"]] == [
        "a.txt",
        "b.txt",
    ]
    assert len({call["id"] for message in (first, second) for call in message["tool_calls"]}) == 3
    assert (second["content"], second["finish_reason"]) == (None, "tool_calls")
    assert (third["content"], third["finish_reason"]) == ("Done.", "stop")
    assert fourth["content"] == "Done."


async def test_a_streamed_turn_says_what_the_whole_one_says() -> None:
    async with running(replace(FAST, plan=json.dumps(PLAN))) as sim:
        sample = await sim.send(CHAT, messages=START, tools=TOOLS, stream=True)
        whole = await ask(sim, START)
    role, *rest = [chunk["choices"][0] for chunk in events(sample)]
    deltas = [choice["delta"] for choice in rest]
    assert role["delta"] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == whole["content"]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == whole["reasoning"]
    for index, call in enumerate(whole["tool_calls"]):
        parts = [part for delta in deltas for part in delta.get("tool_calls", []) if part["index"] == index]
        begin, *pieces = parts
        assert (begin["type"], begin["function"]) == ("function", {"name": call["function"]["name"]})
        assert len(pieces) > 1
        text = "".join(piece["function"]["arguments"] for piece in pieces)
        assert text == call["function"]["arguments"]
    assert (deltas[-1], rest[-1]["finish_reason"]) == ({}, "tool_calls")


async def test_an_earlier_turn_and_the_tools_are_found_in_the_prefix_cache() -> None:
    plan = [{"calls": [{"name": "write", "arguments": {"text": "so many words " * 40}}]}, {"text": "Done."}]
    settings = replace(FAST, plan=json.dumps(plan), prompt_tokens_details=True)
    async with running(settings) as sim:
        message = await ask(sim, START)
        asked = {"messages": [*START, message, *results(message)], "tools": TOOLS}
        usage = decoded(await sim.send(CHAT, **asked))["usage"]
        streamed = await sim.send(CHAT, **asked, stream=True, stream_options={"include_usage": True})
        last = events(streamed)[-1]["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] - cached < 2 * 16
    assert last["prompt_tokens_details"]["cached_tokens"] >= cached


async def test_tokens_are_counted_as_they_are_prefilled(sim: Sim) -> None:
    asked = {"messages": START, "tools": TOOLS}
    counted = decoded(await sim.send("/tokenize", **asked))["count"]
    assert decoded(await sim.send(CHAT, **asked))["usage"]["prompt_tokens"] == counted > 20
    assert decoded(await sim.send("/tokenize", prompt=[7, 8]))["tokens"] == [7, 8]
    assert (await sim.send("/tokenize")).status == 400


async def test_without_tools_a_plan_is_not_played() -> None:
    async with running(replace(FAST, plan=json.dumps(PLAN))) as sim:
        plain = await ask(sim, START, tools=None)
        unwanted = await ask(sim, START, tool_choice="none")
    assert "tool_calls" not in plain
    assert "tool_calls" not in unwanted
    assert "Done." not in (plain["content"], unwanted["content"])


async def test_a_plan_that_needs_a_tool_that_is_not_offered_is_an_error() -> None:
    async with running(replace(FAST, plan=json.dumps(PLAN))) as sim:
        sample = await sim.send(CHAT, messages=START, tools=[tool("write")])
    assert (sample.status, "'read'" in decoded(sample)["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "weather"}}, "stop")],
)
async def test_a_forced_tool_is_called_with_arguments_that_fit(sim: Sim, choice: Any, reason: str) -> None:
    message = await ask(sim, START, tools=[tool("weather", WEATHER)], tool_choice=choice)
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "word"}
    assert message["finish_reason"] == reason


async def test_an_answer_follows_the_schema_that_is_asked_for(sim: Sim) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}}
    message = await ask(sim, START, tools=None, response_format=wanted)
    assert json.loads(message["content"]) == {"city": "word"}


SCHEMAS: list[dict[str, Any]] = [
    WEATHER,
    {"type": "array", "items": {"enum": ["a", "b"]}},
    {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": ["number", "null"]}}},
    {"properties": {"a": {"const": 3}, "b": {"type": "boolean"}}, "required": ["a"]},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_example_fits_its_schema(schema: dict[str, Any]) -> None:
    jsonschema.validate(example_of(schema), schema)


def test_a_plan_may_stand_in_a_file(tmp_path: Any) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(PLAN))
    assert read_plan(str(file)) == read_plan(json.dumps(PLAN))
    with pytest.raises(ValueError, match="a plan is a list of turns"):
        read_plan('[{"calls": [{}]}]')
