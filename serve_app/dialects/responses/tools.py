"""Tools of the Responses API as functions of a chat completion, and a model's calls back as their items.

An engine knows only functions. Tools that a client runs itself under another name (Codex's shells and
patches, free-form tools) become functions with a fixed schema; a call of one comes back as its own item.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from serve_app.dialects.parameters import STRING, closed_object, one_of
from serve_app.errors import BadRequest

NAMESPACE_MARK = "__"
"""Between a namespace and its tool in the name that an engine sees; vLLM's own mark."""

IGNORED = frozenset({"web_search", "web_search_preview", "image_generation", "tool_search"})
"""Tools that the vendor runs, and that agents offer unasked (Codex always offers ``web_search``): beside
tools that the client runs the model does not see them, and so never calls them. A request that offers nothing
else is for these, so it is refused like all other tools that a server would have to run."""

DATED = re.compile(r"web_search(?:_preview)?_\d{4}_\d{2}_\d{2}")
"""Versions of one tool."""

NO_TOOL = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""What a server's own tools left in a history that another server began: the model's texts tell the rest."""

STRINGS = {"type": "array", "items": STRING}
NUMBER = {"type": "number"}


BUILT_IN: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "local_shell": (
        "Runs a command on the user's machine and returns its output.",
        closed_object(
            {"command": STRINGS, "working_directory": STRING, "timeout_ms": NUMBER},
            "command",
        ),
    ),
    "shell": (
        "Runs shell commands on the user's machine and returns their output.",
        closed_object({"commands": STRINGS, "timeout_ms": NUMBER, "max_output_length": NUMBER}, "commands"),
    ),
    "apply_patch": (
        "Creates, updates or deletes a file. `diff` is a V4A diff; deleting needs none.",
        closed_object(
            {
                "type": one_of("create_file", "update_file", "delete_file"),
                "path": STRING,
                "diff": STRING,
            },
            "type",
            "path",
        ),
    ),
}
"""Description and parameters of the tools that a client runs without declaring a schema."""


@dataclass(frozen=True, slots=True)
class Tool:
    """What a function's name stands for. ``kind`` is the tool's ``type``."""

    kind: str
    name: str
    namespace: str | None = None


FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class Tools:
    """A request's tools. ``functions`` are those of the chat completion request; ``known`` has the tool
    behind each function's name."""

    functions: tuple[Mapping[str, Any], ...] = ()
    known: Mapping[str, Tool] = field(default_factory=dict)

    def behind(self, name: str) -> Tool:
        """The tool that a model's call of ``name`` means; a function for a name that was not declared."""
        return self.known.get(name) or Tool(FUNCTION, name)

    def only(self, names: frozenset[str]) -> Tools:
        kept = tuple(each for each in self.functions if each["function"]["name"] in names)
        return Tools(kept, self.known)


def read_tools(sent: Sequence[Mapping[str, Any]]) -> Tools:
    """Raises: BadRequest: a tool that is run by a server, or one without a name; ``param`` says which."""
    if sent and all(_is_ignored(tool.get("type")) for tool in sent):
        raise _not_run(sent[0], "tools[0]")
    functions: list[dict[str, Any]] = []
    known: dict[str, Tool] = {}
    for index, tool in enumerate(sent):
        for name, function, meant in _functions(tool, f"tools[{index}]"):
            if name in known:
                raise BadRequest(f"Two tools have the name {name!r}.", param=f"tools[{index}].name")
            known[name] = meant
            functions.append({"type": FUNCTION, FUNCTION: {"name": name, **function}})
    return Tools(tuple(functions), known)


def _functions(tool: Mapping[str, Any], param: str) -> list[tuple[str, dict[str, Any], Tool]]:
    """The functions that stand for one tool: name, the function's other fields, and what is meant."""
    kind = str(tool.get("type"))
    if _is_ignored(kind):
        return []
    if kind == "namespace":
        return _namespaced(tool, param)
    if kind in BUILT_IN:
        description, parameters = BUILT_IN[kind]
        return [(kind, {"description": description, "parameters": parameters}, Tool(kind, kind))]
    if kind == "custom":
        name = _name(tool, param)
        return [(name, _freeform(tool), Tool(kind, name))]
    if kind == FUNCTION:
        name = _name(tool, param)
        return [(name, _function(tool), Tool(FUNCTION, name))]
    raise _not_run(tool, param)


def _not_run(tool: Mapping[str, Any], param: str) -> BadRequest:
    return BadRequest(
        f"`{param}.type` is {tool.get('type')!r}: this server runs no tools; clients run `function`, "
        "`custom`, `namespace`, `local_shell`, `shell` and `apply_patch`.",
        param=f"{param}.type",
        code="unsupported_value",
    )


def _is_ignored(kind: Any) -> bool:
    return isinstance(kind, str) and (kind in IGNORED or DATED.fullmatch(kind) is not None)


def _namespaced(tool: Mapping[str, Any], param: str) -> list[tuple[str, dict[str, Any], Tool]]:
    namespace, inner = _name(tool, param), tool.get("tools")
    if not isinstance(inner, list):
        raise BadRequest(f"`{param}.tools` must be a list of functions.", param=f"{param}.tools")
    found = []
    for index, each in enumerate(inner):
        where = f"{param}.tools[{index}]"
        if not isinstance(each, dict) or each.get("type") != FUNCTION:
            raise BadRequest(f"`{where}` must be a function.", param=f"{where}.type")
        name = _name(each, where)
        full = f"{namespace}{NAMESPACE_MARK}{name}"
        found.append((full, _function(each), Tool(FUNCTION, name, namespace)))
    return found


def _name(tool: Mapping[str, Any], param: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest(
            f"Missing required field `{param}.name`.", param=f"{param}.name", code="missing_field"
        )
    return name


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tool[name] for name in ("description", "parameters", "strict") if tool.get(name) is not None
    }


def _freeform(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool that takes any text, or a text of a grammar: the model sees the grammar, and may leave it."""
    description = str(tool.get("description") or "")
    form = tool.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        description += f"\n\n`input` follows this {form.get('syntax')} grammar:\n{form.get('definition')}"
    return {"description": description, "parameters": closed_object({"input": STRING}, "input")}


def read_choice(choice: Any, tools: Tools) -> tuple[Any, Tools]:
    """``tool_choice`` of the chat completion request, and the tools that may be called.

    Raises:
        BadRequest: it names a tool that the request does not offer.
    """
    if choice in ("auto", "none", "required", None):
        return choice, tools
    if not isinstance(choice, dict):
        raise _wrong_choice(f"is {choice!r}: expected `auto`, `none`, `required` or a tool")
    if choice.get("type") == "allowed_tools":
        allowed = choice.get("tools")
        if not isinstance(allowed, list) or choice.get("mode") not in ("auto", "required"):
            raise _wrong_choice("needs `mode` (`auto`, `required`) and `tools`")
        named = [each for each in allowed if not (isinstance(each, dict) and _is_ignored(each.get("type")))]
        return choice["mode"], tools.only(frozenset(_chosen(each, tools) for each in named))
    return {"type": FUNCTION, FUNCTION: {"name": _chosen(choice, tools)}}, tools


def _chosen(choice: Any, tools: Tools) -> str:
    """The function that a choice names."""
    given = choice if isinstance(choice, dict) else {}
    kind = given.get("type")
    if _is_ignored(kind):
        raise _wrong_choice(f"asks for {kind!r}, which this server does not run")
    name = kind if isinstance(kind, str) and kind in BUILT_IN else given.get("name")
    if not isinstance(name, str) or name not in tools.known:
        raise _wrong_choice(f"names {name or kind!r}, which is not among `tools`")
    return name


def _wrong_choice(what: str) -> BadRequest:
    return BadRequest(f"`tool_choice` {what}.", param="tool_choice", code="invalid_value")


# ---- a model's call as an item, and an item as a model's call ----


def call_item(tool: Tool, item_id: str, call_id: str, arguments: str, status: str) -> dict[str, Any]:
    """The output item of one call. A call of a tool with a fixed schema whose arguments are not valid comes
    back with what could be read: the client's own check then tells the model."""
    if tool.kind == FUNCTION:
        item = {"type": "function_call", "id": item_id, "call_id": call_id, "name": tool.name}
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        return {**item, "arguments": arguments, "status": status}
    given = _arguments(arguments)
    head = {"id": item_id, "call_id": call_id, "status": status}
    if tool.kind == "custom":
        text = given.get("input")
        text = text if isinstance(text, str) else arguments
        return {"type": "custom_tool_call", **head, "name": tool.name, "input": text}
    if tool.kind == "apply_patch":
        return {"type": "apply_patch_call", **head, "operation": given}
    if tool.kind == "shell":
        action = {"commands": [], "timeout_ms": None, "max_output_length": None, **given}
        return {"type": "shell_call", **head, "action": action}
    action = {"type": "exec", "command": [], "env": {}, **given}
    return {"type": "local_shell_call", **head, "action": action}


def _arguments(text: str) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def called(item: Mapping[str, Any]) -> tuple[str, str]:
    """The function's name and arguments of a call in a history: the reverse of ``call_item``."""
    match item["type"]:
        case "function_call":
            namespace, name = item.get("namespace"), str(item.get("name") or "")
            full = f"{namespace}{NAMESPACE_MARK}{name}" if namespace else name
            return full, _whole_arguments(item.get("arguments"))
        case "custom_tool_call":
            return str(item.get("name") or ""), _json({"input": item.get("input") or ""})
        case "apply_patch_call":
            return "apply_patch", _json(item.get("operation") or {})
        case "shell_call":
            return "shell", _json(_set(item.get("action")))
        case _:
            action = _set(item.get("action"))
            return "local_shell", _json(
                {name: action[name] for name in action if name not in ("type", "env")}
            )


def _whole_arguments(given: Any) -> str:
    """Engines refuse a whole conversation for one call whose arguments a model wrote wrongly: such a text is
    put into an object."""
    if not isinstance(given, str) or not given:
        return "{}"
    try:
        is_object = isinstance(msgspec.json.decode(given), dict)
    except (msgspec.DecodeError, RecursionError):
        is_object = False
    return given if is_object else _json({"arguments": given})


def _set(action: Any) -> dict[str, Any]:
    """An action without its unset fields."""
    given = action if isinstance(action, dict) else {}
    return {name: value for name, value in given.items() if value is not None}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
