"""Tools, and which of them the model must or may use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from serve_app.dialects.anthropic.blocks import AnyChoice, AutoChoice, Choice, NoChoice, Tool, ToolChoice
from serve_app.dialects.anthropic.client_tools import CLIENT_TOOLS
from serve_app.errors import BadRequest

OWN_KIND = (None, "custom")
"""Tools that the client runs and describes itself. Others are described by Anthropic: those of
``CLIENT_TOOLS`` are run by the client too."""

WEB_SEARCH = re.compile(r"web_search_\d{8}")
"""What Anthropic's servers run and agents offer beside their own tools: the model does not see it, as in the
Responses API, unless the request is for nothing else."""


def tool_fields(tools: Sequence[Tool] | None, choice: Choice | None) -> dict[str, Any]:
    """The fields of a chat completion request for these tools.

    Raises:
        BadRequest: no client runs the tool, or it has no name or schema, or the choice names no tool.
    """
    if not tools:
        if isinstance(choice, AnyChoice | ToolChoice):
            raise BadRequest("`tool_choice` asks for a tool, but there are no `tools`.", param="tool_choice")
        return {}
    shown = []
    for number, tool in enumerate(tools):
        if not WEB_SEARCH.fullmatch(tool.type or ""):
            shown.append((number, tool))
        elif isinstance(choice, ToolChoice) and choice.name == tool.name:
            raise _not_run(tool, f"tools[{number}]")
    if not shown:
        raise _not_run(tools[0], "tools[0]")
    fields: dict[str, Any] = {"tools": [_function(number, tool) for number, tool in shown]}
    return fields | dict(_choice(choice, {tool.name for _, tool in shown}))


def _function(number: int, tool: Tool) -> dict[str, Any]:
    where = f"tools[{number}]"
    kind = tool.type or "custom"
    if kind not in OWN_KIND and kind not in CLIENT_TOOLS:
        raise _not_run(tool, where)
    if not tool.name:
        raise _missing(f"{where}.name")
    function: dict[str, Any] = {"name": tool.name}
    if kind in CLIENT_TOOLS:
        function["description"], function["parameters"] = CLIENT_TOOLS[kind](tool)
    elif tool.input_schema is None:
        raise _missing(f"{where}.input_schema")
    else:
        if tool.description is not None:
            function["description"] = tool.description
        function["parameters"] = {"type": "object", **tool.input_schema}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _not_run(tool: Tool, where: str) -> BadRequest:
    return BadRequest(
        f"`{where}.type` is {str(tool.type)[:100]!r}: this server runs no tools; clients run 'custom' tools "
        f"with their `input_schema`, and {', '.join(map(repr, CLIENT_TOOLS))}.",
        param=f"{where}.type",
        code="unsupported_value",
    )


def _missing(field: str) -> BadRequest:
    return BadRequest(f"Missing required field `{field}`.", param=field, code="missing_field")


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
