"""How deep JSON is nested. Engines walk a body by recursion, some of it in the cube of its depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_app.errors import BadRequest

CONTAINERS = frozenset({dict, list})


def refuse_deep(fields: Mapping[str, Any], most: int) -> None:
    """``most`` levels of objects and arrays, ``fields`` itself being the first.

    Raises:
        BadRequest: there are more; ``param`` is the outermost field that holds them.
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
    """Level by level: the cost is that of looking at every value once, however deep they lie."""
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
