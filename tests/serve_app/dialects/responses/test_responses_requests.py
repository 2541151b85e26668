"""Requests of the Responses API as chats, item by item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.dialects.hidden import hidden_reasoning
from serve_app.dialects.responses.dialect import read_alone
from serve_app.dialects.responses.ids import ItemIds, response_of
from serve_app.dialects.responses.items import reasoning_text, stored
from serve_app.dialects.responses.request import read
from serve_app.errors import BadRequest

UNIQUE = "0" * 32
HI = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> dict[str, Any]:
    return read_alone(read({"model": "m", **fields})).fields


def messages(*items: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(input=list(items))["messages"]
    return found


def test_a_plain_text_is_what_a_chat_client_would_send() -> None:
    expected = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    parts = [{"type": "input_text", "text": "hi"}]
    assert chat(input="hi", store=False, metadata={"a": "b"}, text={"format": {"type": "text"}}) == expected
    assert chat(input=[{"role": "user", "content": parts}]) == expected
    assert chat(input="hi", instructions="Be kind.")["messages"][0] == {
        "role": "system",
        "content": "Be kind.",
    }


def test_fields_become_their_counterparts() -> None:
    schema = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    found = chat(
        input="hi",
        stream=True,
        max_output_tokens=5,
        reasoning={"effort": "low"},
        text={"format": form},
        truncation="auto",
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        temperature=0.5,
    )
    assert found == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 5,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": schema, "strict": True},
        },
        "truncate_prompt_tokens": -1,
        "logprobs": True,
        "top_logprobs": 2,
        "temperature": 0.5,
    }


@pytest.mark.parametrize(
    ("name", "lax", "strict"),
    [
        ("max_output_tokens", "5", 5),
        ("max_output_tokens", 5.0, 5),
        ("top_logprobs", "2", 2),
        ("stream", "true", True),
        ("store", "false", False),
        ("background", "true", True),
        ("parallel_tool_calls", 0, False),
        ("temperature", "0.5", 0.5),
    ],
)
def test_numbers_and_booleans_may_be_written_as_engines_accept_them(name: str, lax: Any, strict: Any) -> None:
    asked, exact = (read({"model": "sim", "input": "Hi", name: value}) for value in (lax, strict))
    assert (asked.request, asked.fields) == (exact.request, exact.fields)


@pytest.mark.parametrize("named", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_an_input_that_is_null_is_none_where_something_was_said_before(named: dict[str, str]) -> None:
    assert list(read({"model": "sim", "input": None, **named}).items) == []


def test_an_input_that_is_null_alone_is_missed() -> None:
    with pytest.raises(BadRequest, match="Missing required field `input`"):
        read({"model": "sim", "input": None})


def test_system_messages_at_the_beginning_are_one() -> None:
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "b"}]}
    found = chat(input=[developer, {"role": "user", "content": "c"}, developer], instructions="a")["messages"]
    assert [(each["role"], each["content"]) for each in found] == [
        ("system", "a\n\nb"),
        ("user", "c"),
        ("system", "b"),
    ]


def test_an_assistants_turn_is_one_message() -> None:
    found = messages(
        {"role": "user", "content": "go"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": "", "namespace": "n"},
        {"type": "function_call_output", "call_id": "2", "output": "two"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "one"}]},
    )
    calls = [("1", "f"), ("2", "n__g")]
    assert found == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning": "hm",
            "tool_calls": [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
                for call_id, name in calls
            ],
        },
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
    ]


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        ({"type": "custom_tool_call", "name": "patch", "input": "x"}, "patch", '{"input":"x"}'),
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
            "local_shell",
            '{"command":["ls"]}',
        ),
        (
            {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": None}},
            "shell",
            '{"commands":["ls"]}',
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            "apply_patch",
            '{"type":"delete_file","path":"a"}',
        ),
    ],
)
def test_calls_of_codexs_tools_go_back_as_functions(call: dict[str, Any], name: str, arguments: str) -> None:
    (said,) = messages({**call, "call_id": "1"})
    assert said["tool_calls"][0]["function"] == {"name": name, "arguments": arguments}


def test_what_a_shell_returned_is_text() -> None:
    result = {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 1}}
    *_, said = messages(
        {"type": "shell_call", "call_id": "1", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "1", "output": [result]},
    )
    assert said["content"] == "ab\n(exit code 1)"


def test_images_and_audio_are_parts() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,x", "detail": "high"}
    audio = {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}
    (said,) = messages({"role": "user", "content": [image, audio]})
    assert said["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,x", "detail": "high"}},
        audio,
    ]


def test_hidden_reasoning_comes_back_and_that_of_others_is_passed_over() -> None:
    assert reasoning_text({"encrypted_content": hidden_reasoning("ä")}) == "ä"
    assert reasoning_text({"encrypted_content": "promptly1.%%"}) == ""
    assert reasoning_text({"encrypted_content": "gAAAA", "summary": []}) == ""


SHELL: dict[str, Any] = {"type": "local_shell"}


def test_tools_that_nobody_here_runs_are_ignored_beside_others_or_refused() -> None:
    (function,) = chat(input="hi", tools=[{"type": "web_search"}, SHELL], tool_choice="auto")["tools"]
    assert function["function"]["name"] == "local_shell"
    with pytest.raises(BadRequest, match="'mcp'"):
        chat(input="hi", tools=[{"type": "mcp"}])
    function = {"type": "function", "name": "f"}
    with pytest.raises(BadRequest, match="Two tools"):
        chat(input="hi", tools=[function, function])


@pytest.mark.parametrize("kind", ["web_search", "web_search_2025_08_26", "image_generation"])
def test_a_request_for_nothing_but_a_servers_tool_is_refused(kind: str) -> None:
    with pytest.raises(BadRequest, match=f"'{kind}': this server runs no tools") as caught:
        chat(input="hi", tools=[{"type": kind}, {"type": "web_search"}])
    assert caught.value.param == "tools[0].type"


def test_versions_of_an_ignored_tool_are_ignored_too() -> None:
    dated = [{"type": "web_search_2025_08_26"}, {"type": "web_search_preview_2025_03_11"}]
    assert len(chat(input="hi", tools=[*dated, SHELL])["tools"]) == 1
    searched = [{"type": "web_search"}, SHELL]
    with pytest.raises(BadRequest, match="'web_search', which this server does not run"):
        chat(input="hi", tools=searched, tool_choice={"type": "web_search"})
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    assert "tools" not in chat(input="hi", tools=searched, tool_choice=allowed)
    found = messages(
        {"type": "tool_search_call", "arguments": {}}, {"type": "tool_search_output", "tools": []}, HI
    )
    assert found == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("wrong", ["{not json", "[1]", '"x"'])
def test_arguments_that_a_model_wrote_wrongly_do_not_end_the_session(wrong: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": wrong}
    (function,) = messages(HI, call)[-1]["tool_calls"]
    assert json.loads(function["function"]["arguments"]) == {"arguments": wrong}


@pytest.mark.parametrize("effort", [{}, ["high"], 3])
def test_an_effort_that_is_no_text_is_refused_by_name(effort: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(input="hi", reasoning={"effort": effort})
    assert caught.value.param == "reasoning.effort"


def test_an_assistant_may_have_said_nothing() -> None:
    silent = {"type": "message", "role": "assistant", "content": []}
    assert messages(HI, silent, HI)[1] == {"role": "assistant", "content": ""}


def test_an_id_that_comes_twice_names_one_item() -> None:
    item = {"type": "message", "id": "msg_1", "role": "user", "content": "hi"}
    ids = [each["id"] for each in stored([item, item], ItemIds(UNIQUE))]
    assert ids == ["msg_1", f"msg_{UNIQUE}i0001"]


def test_a_choice_may_allow_some_tools() -> None:
    tools = [{"type": "function", "name": name} for name in "fg"]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    found = chat(input="hi", tools=tools, tool_choice=allowed, parallel_tool_calls=False)
    assert [each["function"]["name"] for each in found["tools"]] == ["g"]
    assert (found["tool_choice"], found["parallel_tool_calls"]) == ("required", False)
    named = chat(input="hi", tools=tools, tool_choice={"type": "function", "name": "f"})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "f"}}


def test_an_items_id_tells_its_response() -> None:
    ids = ItemIds(UNIQUE)
    assert response_of(ids.of_output("message", 3)) == f"resp_{UNIQUE}"
    assert response_of("msg_of_somebody_else") is None
    (item,) = stored([{"type": "message", "role": "user", "content": "hi"}], ids)
    assert response_of(item["id"]) == f"resp_{UNIQUE}"
    assert item["content"] == [{"type": "input_text", "text": "hi"}]
