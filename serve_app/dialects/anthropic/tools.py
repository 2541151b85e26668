"""Tools, and which of them the model must or may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from serve_app.dialects.anthropic.blocks import AnyChoice, AutoChoice, Choice, NoChoice, Tool, ToolChoice
from serve_app.errors import BadRequest

OWN_KIND = (None, "custom")
"""Tools that the client runs and describes itself. All others are Anthropic's."""


def tool_fields(tools: Sequence[Tool] | None, choice: Choice | None) -> dict[str, Any]:
    """The fields of a chat completion request for these tools.

    Raises:
        BadRequest: a tool is not the client's own or has no schema, or the choice names no tool.
    """
    if not tools:
        if isinstance(choice, AnyChoice | ToolChoice):
            raise BadRequest("`tool_choice` asks for a tool, but there are no `tools`.", param="tool_choice")
        return {}
    fields: dict[str, Any] = {"tools": [_function(number, tool) for number, tool in enumerate(tools)]}
    return fields | dict(_choice(choice, {tool.name for tool in tools}))


def _function(number: int, tool: Tool) -> dict[str, Any]:
    where = f"tools[{number}]"
    if tool.type not in OWN_KIND:
        raise BadRequest(
            f"`{where}.type` is {tool.type!r}: this endpoint has no tools of its own; expected 'custom', "
            "a tool that the client runs, with its `input_schema`.",
            param=f"{where}.type",
            code="unsupported_value",
        )
    if tool.input_schema is None:
        missing = f"{where}.input_schema"
        raise BadRequest(f"Missing required field `{missing}`.", param=missing, code="missing_field")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = {"type": "object", **tool.input_schema}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: Choice | None, names: set[str]) -> Iterator[tuple[str, Any]]:
    if choice is None:
        return
    if isinstance(choice, ToolChoice):
        if choice.name not in names:
            raise BadRequest(
                f"`tool_choice.name` is {choice.name[:100]!r}, which is none of the `tools`.",
                param="tool_choice.name",
                code="invalid_value",
            )
        yield "tool_choice", {"type": "function", "function": {"name": choice.name}}
    else:
        yield "tool_choice", {AutoChoice: "auto", AnyChoice: "required", NoChoice: "none"}[type(choice)]
    if choice.disable_parallel_tool_use is not None:
        yield "parallel_tool_calls", not choice.disable_parallel_tool_use
