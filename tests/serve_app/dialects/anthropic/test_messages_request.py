"""Messages requests as chat completion requests, field by field."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from serve_app.dialects.anthropic import InlineSystem, count_request, inline_system_of, read_messages
from serve_app.dialects.hidden import hidden_reasoning
from serve_app.errors import BadRequest
from serve_app.openai.requests import Endpoint, generation_from
from serve_app.openai.vendor import vendor_fields
from serve_app.routing.prompt import blocks_of, prompt_text

USER = {"role": "user", "content": "hi"}
ASK: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [USER]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"name": "f", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
SEARCH = {"name": "web_search", "type": "web_search_20250305"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
UNREAD = "[A document that is no text: this server cannot read it.]"
PIXEL = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def read(inline: InlineSystem = InlineSystem.FIRST, **fields: Any) -> dict[str, Any]:
    """The chat's fields, without those of ``ASK`` itself."""
    chat = read_messages(ASK | fields, inline).fields
    base = {"model": "m", "max_tokens": 5, "messages": [USER]}
    return {name: value for name, value in chat.items() if base.get(name) != value}


def messages(*turns: dict[str, Any], inline: InlineSystem = InlineSystem.FIRST, **fields: Any) -> Any:
    return read_messages(ASK | {"messages": list(turns)} | fields, inline).fields["messages"]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "é"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}


@pytest.mark.parametrize(
    ("given", "chat"),
    [
        ({}, {}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"stream": False, "stop_sequences": [], "tools": []}, {}),
        ({"temperature": 0, "top_p": 1, "top_k": 3}, {"temperature": 0, "top_p": 1, "top_k": 3}),
        ({"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"metadata": {"user_id": "u"}}, {"user": "u"}),
        ({"max_tokens": "7"}, {"max_tokens": 7}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"thinking": {"type": "between_tools"}}, {}),
        ({"thinking": {"type": "of a later year"}}, {}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
        ),
        (
            {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"thinking": True}},
            {"chat_template_kwargs": {"enable_thinking": False, "thinking": True}},
        ),
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "output", "schema": SCHEMA, "strict": True},
                }
            },
        ),
        ({"tools": [TOOL | {"cache_control": {"type": "ephemeral"}}]}, {"tools": [FUNCTION]}),
        (
            {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"tools": [FUNCTION], "tool_choice": "auto", "parallel_tool_calls": False},
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "any"}},
            {"tools": [FUNCTION], "tool_choice": "required"},
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "none"}}, {"tools": [FUNCTION], "tool_choice": "none"}),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
            {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        ({"tool_choice": {"type": "none"}}, {}),
        (
            {"cache_salt": "s", "priority": 3, "vllm_xargs": {"a": 1}},
            {"cache_salt": "s", "priority": 3, "vllm_xargs": {"a": 1}},
        ),
        # What only Anthropic's servers know, and what no one knows yet.
        ({"service_tier": "auto", "context_management": {"edits": []}, "n": 4, "new": 1}, {}),
    ],
)
def test_fields(given: dict[str, Any], chat: dict[str, Any]) -> None:
    assert read(**given) == chat


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([user(text("a"))], [{"role": "user", "content": "a"}]),
        ([user(text("a"), text("b"))], [user(text("a"), text("b"))]),
        (
            [user({"type": "image", "source": PIXEL}, text("what?"))],
            [
                user(
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    text("what?"),
                )
            ],
        ),
        (
            [user({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}})],
            [user({"type": "image_url", "image_url": {"url": "https://x/y.png"}})],
        ),
        (
            [user({"type": "document", "title": "t", "source": {"type": "text", "data": "words"}})],
            [{"role": "user", "content": "words"}],
        ),
        (
            [USER, assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, text("yes")), USER],
            [USER, {"role": "assistant", "content": "yes", "reasoning": "hm"}, USER],
        ),
        (
            [USER, assistant({"type": "redacted_thinking", "data": "x"}), USER],
            [USER, {"role": "assistant", "content": ""}, USER],
        ),
        (
            [USER, assistant(text("I look."), USE), user(RESULT, text("and?"))],
            [
                USER,
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [
                        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":"é"}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "t1", "content": "done"},
                {"role": "user", "content": "and?"},
            ],
        ),
    ],
)
def test_turns(turns: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert messages(*turns) == expected


@pytest.mark.parametrize(
    ("content", "is_error", "said"),
    [
        (None, None, ""),
        ([], True, "The tool failed."),
        ([text("a"), text("b")], None, "a\nb"),
        ("no such file", True, "The tool failed.\nno such file"),
        ("ok", False, "ok"),
        ([{"type": "browser_state", "url": "x"}], None, "[browser_state: this server cannot read it.]"),
        ([{"type": "tool_reference", "tool_name": "mcp__a"}], None, "Loaded tool: mcp__a"),
        ([{"type": "search_result", "title": "t", "source": "s", "content": [text("a")]}], None, "t\ns\na"),
        ([{"type": "document", "source": PDF}], None, UNREAD),
    ],
)
def test_results_of_tools(content: Any, is_error: bool | None, said: str) -> None:
    result = RESULT | {"content": content, "is_error": is_error}
    *_, answer = messages(USER, assistant(USE), user(result))
    assert answer == {"role": "tool", "tool_call_id": "t1", "content": said}


def test_an_image_of_a_tool_comes_in_a_message_of_the_user_behind_all_results() -> None:
    image = RESULT | {"content": [text("see"), {"type": "image", "source": PIXEL}]}
    other = USE | {"id": "t2"}
    *_, first, second, shown = messages(
        USER, assistant(USE, other), user(image, RESULT | {"tool_use_id": "t2"})
    )
    assert [first["tool_call_id"], second["tool_call_id"]] == ["t1", "t2"]
    assert shown == user({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})


def test_a_pdf_that_was_read_before_does_not_end_the_session() -> None:
    document = {"type": "document", "source": PDF}
    assert messages(user(document), assistant(text("no")), USER)[0] == {"role": "user", "content": UNREAD}
    assert messages(USER, assistant(USE), user(RESULT, document))[-1]["content"] == UNREAD


FILE = {"type": "image", "source": {"type": "file", "file_id": "f"}}


def test_a_block_that_is_not_known_ends_no_session_that_holds_it() -> None:
    known = [user(FILE, text("hi")), assistant({"type": "compaction", "content": "x"}), USER]
    noted, answered, asked = messages(*known)
    assert noted["content"] == [text("[image: this server cannot read it.]"), text("hi")]
    assert answered["content"] == "[compaction: this server cannot read it.]"
    assert asked == USER
    with pytest.raises(BadRequest) as caught:
        messages(*known, user(text("now"), {"type": "video"}))
    assert caught.value.param == "messages[3].content[1].type"


@pytest.mark.parametrize(
    ("turn", "shown"),
    [
        (user(RESULT), ["f"]),
        (user(RESULT | {"content": [{"type": "tool_reference", "tool_name": "late"}]}), ["f", "late"]),
        (
            {
                "role": "system",
                "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "late"}}],
            },
            ["f", "late"],
        ),
    ],
)
def test_a_deferred_tool_is_shown_once_it_is_loaded(turn: dict[str, Any], shown: list[str]) -> None:
    tools = [TOOL, TOOL | {"name": "late", "defer_loading": True}]
    given = ASK | {"messages": [USER, assistant(USE), turn], "tools": tools}
    fields = read_messages(given, InlineSystem.FIRST).fields
    assert [tool["function"]["name"] for tool in fields["tools"]] == shown


def test_a_deferred_tool_that_was_called_or_is_asked_for_is_shown() -> None:
    late = TOOL | {"defer_loading": True}
    assert "tools" not in read(tools=[late])
    assert read(tools=[late], messages=[USER, assistant(USE), user(RESULT)])["tools"] == [FUNCTION]
    assert read(tools=[late], tool_choice={"type": "tool", "name": "f"})["tools"] == [FUNCTION]


def test_hidden_thoughts_are_the_models_own_again() -> None:
    block = {"type": "thinking", "thinking": "", "signature": hidden_reasoning("I look.")}
    assert messages(USER, assistant(block, text("a")), USER)[1]["reasoning"] == "I look."


def test_what_anthropics_servers_ran_before_is_left_out() -> None:
    ran = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    assert messages(USER, assistant(ran, found, text("It rains.")), USER)[1] == {
        "role": "assistant",
        "content": "It rains.",
    }


def test_an_assistants_last_turn_is_gone_on_with() -> None:
    chat = read_messages(
        ASK | {"messages": [USER, {"role": "assistant", "content": "The"}]}, InlineSystem.FIRST
    )
    assert chat.fields["continue_final_message"] is True
    assert chat.fields["add_generation_prompt"] is False
    assert "continue_final_message" not in vendor_fields(chat.fields, "m")


def test_a_last_turn_without_text_is_nothing_to_go_on_with() -> None:
    turns = [USER, assistant({"type": "thinking", "thinking": "hm", "signature": "s"})]
    assert "continue_final_message" not in read_messages(ASK | {"messages": turns}, InlineSystem.FIRST).fields


# ---- system ----


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("be short", "be short"),
        ([text("be short"), text("be kind")], "be short\nbe kind"),
        ([text("x-anthropic-billing-header: cch=1f2e;"), text("be short")], "be short"),
    ],
)
def test_the_system_text_is_one_plain_message(system: Any, said: str) -> None:
    assert messages(USER, system=system) == [{"role": "system", "content": said}, USER]


REMINDED = [USER, {"role": "system", "content": "late"}]


def test_system_turns_in_their_three_places() -> None:
    assert messages(*REMINDED, system="first", inline=InlineSystem.FIRST) == [
        {"role": "system", "content": "first\nlate"},
        USER,
    ]
    assert messages(*REMINDED, inline=InlineSystem.SYSTEM) == REMINDED
    reminder = "<system-reminder>\nlate\n</system-reminder>"
    assert messages(*REMINDED, inline=InlineSystem.USER) == [user(text("hi"), text(reminder))]
    assert messages(REMINDED[1], USER, inline=InlineSystem.USER) == [user(text(reminder), text("hi"))]


@pytest.mark.parametrize("inline", list(InlineSystem))
@pytest.mark.parametrize(
    "turn",
    [
        {"content": [{"type": "tool_addition", "tool": {"name": "f"}}, {"type": "tool_removal"}]},
        {"content": [], "output_config": {"effort": "low"}},
        {"output_config": {"effort": "low"}},
    ],
)
def test_a_system_turn_may_hold_no_text(turn: dict[str, Any], inline: InlineSystem) -> None:
    assert messages(USER, {"role": "system"} | turn, inline=inline) == [USER]


@pytest.mark.parametrize("inline", list(InlineSystem))
def test_the_text_of_a_system_turn_is_read_among_other_blocks(inline: InlineSystem) -> None:
    blocks = [text("late"), {"type": "tool_addition"}]
    assert messages(USER, {"role": "system", "content": blocks}, inline=inline) == messages(
        *REMINDED, inline=inline
    )


@pytest.mark.parametrize(
    ("agent", "inline"),
    [("claude-cli/2.0", "user"), ("Claude-cli/2", "first"), ("x", "first"), (None, "first")],
)
def test_only_known_clients_keep_their_system_turns_in_place(agent: str | None, inline: str) -> None:
    assert inline_system_of(agent, ["claude-cli/"], "user") == inline


def test_a_setting_may_recognise_every_client() -> None:
    assert inline_system_of("x", [""], "system") is InlineSystem.SYSTEM
    assert inline_system_of("x", [], "system") is InlineSystem.FIRST


@pytest.mark.parametrize("inline", [InlineSystem.USER, InlineSystem.SYSTEM])
def test_a_conversation_that_grows_keeps_its_prefix(inline: InlineSystem) -> None:
    """The hashes by which the router knows a prefix, with a system message in every turn."""
    turns: list[dict[str, Any]] = []
    before: tuple[int, ...] = ()
    system = [text("x-anthropic-billing-header: 1"), text("be short " * 100)]
    for number in range(6):
        system[0] = text(f"x-anthropic-billing-header: {number}")
        turns += [{"role": "user", "content": f"question {number} " * 50}]
        turns += [{"role": "system", "content": f"it is {number} o'clock"}]
        chat = read_messages(ASK | {"messages": turns, "system": system, "tools": [TOOL]}, inline)
        parsed = generation_from(Endpoint.CHAT, chat.fields)
        blocks = blocks_of(prompt_text(parsed), "m")
        assert blocks[: len(before)] == before != blocks
        before = blocks
        turns += [assistant(text("answer " * 80), USE | {"id": f"t{number}"})]
        turns += [user(RESULT | {"tool_use_id": f"t{number}"})]
        turns += [assistant(text("well"))]


# ---- tools that Anthropic describes ----


def function_of(tool: dict[str, Any]) -> dict[str, Any]:
    (made,) = read(tools=[tool])["tools"]
    function: dict[str, Any] = made["function"]
    return function


@pytest.mark.parametrize(
    ("kind", "name", "calls"),
    [
        ("bash_20250124", "bash", [{"command": "ls"}, {"restart": True}]),
        ("bash_20241022", "bash", [{"command": "ls"}]),
        (
            "text_editor_20250124",
            "str_replace_editor",
            [
                {"command": "insert", "path": "/a", "insert_line": 0, "new_str": "x"},
                {"command": "undo_edit", "path": "/a"},
            ],
        ),
        (
            "text_editor_20250728",
            "str_replace_based_edit_tool",
            [
                {"command": "view", "path": "/a", "view_range": [1, -1]},
                {"command": "create", "path": "/a", "file_text": "x"},
                {"command": "str_replace", "path": "/a", "old_str": "x", "new_str": "y"},
                {"command": "insert", "path": "/a", "insert_line": 0, "insert_text": "x"},
            ],
        ),
        (
            "memory_20250818",
            "memory",
            [
                {"command": "view", "path": "/memories"},
                {"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": "x"},
                {"command": "delete", "path": "/memories/a"},
                {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"},
            ],
        ),
        ("computer_20241022", "computer", [{"action": "left_click_drag", "coordinate": [3, 4]}]),
        (
            "computer_20250124",
            "computer",
            [
                {"action": "scroll", "coordinate": [3, 4], "scroll_direction": "up", "scroll_amount": 2},
                {"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]},
                {"action": "hold_key", "text": "ctrl", "duration": 0.5},
            ],
        ),
        ("computer_20251124", "computer", [{"action": "left_click"}]),
    ],
)
def test_a_tool_that_the_client_runs_becomes_a_function(
    kind: str, name: str, calls: list[dict[str, Any]]
) -> None:
    """With a schema that its documented calls fit, and no other."""
    function = function_of({"type": kind, "name": name, "strict": True, "max_characters": 9})
    assert (function["name"], function["strict"]) == (name, True)
    assert len(function["description"]) > 20
    schema = jsonschema.Draft202012Validator(function["parameters"])
    for call in calls:
        schema.validate(call)
    assert not schema.is_valid({"command": 3, "action": 3})
    assert not schema.is_valid(calls[0] | {"another": 1})


def test_a_computers_screen_and_its_zoom_are_told_to_the_model() -> None:
    tool = {"type": "computer_20251124", "name": "computer"}
    tool |= {"display_width_px": 1024, "display_height_px": 768, "enable_zoom": True}
    function = function_of(tool)
    assert "1024 x 768" in function["description"]
    assert "region" in function["parameters"]["properties"]
    assert "zoom" in function["parameters"]["properties"]["action"]["enum"]
    assert "zoom" not in str(function_of(tool | {"enable_zoom": False}))


def test_a_search_of_the_web_beside_other_tools_is_not_shown_to_the_model() -> None:
    assert read(tools=[SEARCH, TOOL], tool_choice={"type": "auto"}) == {
        "tools": [FUNCTION],
        "tool_choice": "auto",
    }


# ---- what is refused ----


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ({"max_tokens": None}, "max_tokens", "Expected `integer`"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"messages": []}, "messages", "length >= 1"),
        ({"messages": [user()]}, "messages", "all are empty"),
        ({"messages": [{"role": "system", "content": "x-anthropic-billing-header: a"}]}, "messages", "empty"),
        (
            {"messages": [{"role": "system", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "must be a string",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "'tool'"),
        ({"messages": [user({"type": "video"})]}, "messages[0].content[0].type", "'video'"),
        (
            {"messages": [user({"type": "server_tool_use", "id": "x"})]},
            "messages[0].content[0].type",
            "'server_tool_use'",
        ),
        (
            {"messages": [user({"type": "document", "source": {"type": "base64", "data": ""}})]},
            "messages[0].content[0].source.type",
            "'base64'",
        ),
        ({"messages": [user(RESULT)]}, "messages[0].content[0].tool_use_id", "'t1'"),
        ({"messages": [assistant(RESULT)]}, "messages[0].content[0].type", "'tool_result'"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "Missing required field"),
        (
            {"tools": [{"name": "s", "type": "web_search_20250305"}]},
            "tools[0].type",
            "'web_search_20250305'",
        ),
        (
            {"tools": [TOOL, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}},
            "tools[1].type",
            "'web_search_20250305'",
        ),
        *(
            ({"tools": [TOOL, {"name": "s", "type": kind}]}, "tools[1].type", f"'{kind}'")
            for kind in ("code_execution_20250825", "web_fetch_20250910", "bash_20990101")
        ),
        ({"tools": [{"type": "computer_toolset_20260801"}]}, "tools[0].type", "'computer_toolset_20260801'"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, "tools[0].type", "'mcp_toolset'"),
        ({"tools": [{"input_schema": SCHEMA}]}, "tools[0].name", "Missing required field"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "there are no `tools`"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
            "tool_choice.name",
            "none of the `tools`",
        ),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type", "'some'"),
        ({"thinking": {}}, "thinking.type", "Missing required field"),
        ({"mcp_servers": [{"url": "https://x"}]}, "mcp_servers", "not supported"),
        ({"container": "c1"}, "container", "not supported"),
        ({"thread": {"type": "create"}}, "thread", "without `thread`"),
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread", "without `thread`"),
        ({"compaction": {"type": "summarize"}}, "compaction", "compacted"),
        ({"temperature": "hot"}, "temperature", "Expected `number"),
        ({"system": [{"type": "image", "source": PIXEL}]}, "system[0].type", "'image'"),
    ],
)
def test_what_is_refused_is_named(given: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_messages(ASK | given, InlineSystem.FIRST)
    assert caught.value.param == param
    assert said in caught.value.message


# ---- counting ----


def test_what_is_counted_is_the_prompt_alone() -> None:
    given = {name: value for name, value in ASK.items() if name != "max_tokens"}
    given |= {"tools": [TOOL], "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}}
    assert count_request(given, InlineSystem.FIRST) == {
        "model": "m",
        "messages": [USER],
        "tools": [FUNCTION],
        "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    }


# ---- vendors ----


def test_a_vendor_gets_no_field_of_vllms() -> None:
    turns = [USER, assistant({"type": "thinking", "thinking": "hm"}, text("yes")), USER]
    given = ASK | {"messages": turns, "top_k": 1, "thinking": {"type": "disabled"}, "priority": 1}
    given |= {"cache_salt": "s", "output_config": {"effort": "max"}, "metadata": {"user_id": "u" * 65}}
    assert vendor_fields(read_messages(given, InlineSystem.FIRST).fields, "m") == {
        "model": "m",
        "max_tokens": 5,
        "messages": [USER, {"role": "assistant", "content": "yes"}, USER],
    }


@pytest.mark.parametrize(
    ("served_as", "sent"), [("gpt-4.1", None), ("gpt-5-mini", "high"), ("openai/o3", "high"), ("llama", None)]
)
def test_a_vendor_gets_an_effort_only_for_a_model_that_has_one(served_as: str, sent: str | None) -> None:
    fields = read_messages(ASK | {"output_config": {"effort": "max"}}, InlineSystem.FIRST).fields
    assert vendor_fields(fields, served_as).get("reasoning_effort") == sent
