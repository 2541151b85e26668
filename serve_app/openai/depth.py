"""Limits the nesting of JSON. Engines process bodies recursively; some steps take the cube of the depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from serve_app.errors import BadRequest

CONTAINERS = frozenset({dict, list})


def refuse_deep(fields: Mapping[str, Any], most: int) -> None:
    """Allow ``most`` levels of objects and arrays; ``fields`` itself is the first.

    Raises:
        BadRequest: there are more levels; ``param`` is the outermost field with them.
    """
    if not is_deeper(fields, most):
        return
    deep = (
        name for name, value in fields.items() if type(value) in CONTAINERS and is_deeper(value, most - 1)
    )
    raise too_deep(next(deep, None), most)


def too_deep(param: str | None, most: int) -> BadRequest:
    what = "The request body" if param is None else f"`{param}`"
    return BadRequest(
        f"{what} is nested deeper than {most} levels (limits.max_json_depth).",
        param=param,
        code="nested_too_deeply",
    )


def is_deeper(value: Any, most: int) -> bool:
    """Goes level by level, so that it visits every value once, at any depth."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in CONTAINERS
        ]
        if not level:
            return False
    return True


def refuse_deep_arguments(fields: Mapping[str, Any], most: int) -> None:
    """Check the arguments of tool calls in a conversation: they are JSON as text, which engines parse
    recursively.

    Raises:
        BadRequest: an argument is nested deeper than ``most``; ``param`` names it.
    """
    for field in ("messages", "input"):  # of chats, and of the Responses API
        items = fields.get(field)
        for number, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and ("tool_calls" in item or "arguments" in item):
                for name, text in _arguments(item):
                    if text.count("{") + text.count("[") > most and _text_is_deeper(text, most):
                        raise too_deep(f"{field}[{number}].{name}", most)


def _arguments(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The arguments of one message or item, by name."""
    yield from _text("arguments", item.get("arguments"))
    calls = item.get("tool_calls")
    for position, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield from _text(f"tool_calls[{position}].function.arguments", function.get("arguments"))


def _text(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value


def _text_is_deeper(text: str, most: int) -> bool:
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        return True
    except msgspec.DecodeError:
        return False  # the engine reports the error
    return type(value) in CONTAINERS and is_deeper(value, most)
