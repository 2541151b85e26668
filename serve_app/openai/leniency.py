"""Numbers and truths as vLLM takes them: ``max_tokens: 5.0``, ``"5"``, ``stream: "true"``.

vLLM reads requests with pydantic's lax mode; clients that were written against it, and languages whose
numbers are all floats, rely on it. What is written in another type is rewritten into the field's own, before
anything else looks at it: the cache takes 5.0 and 5 for the same request, and an engine sees what was judged.
What vLLM would not take is left as it is, and refused by the typed reading that follows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

INTEGER = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*", re.ASCII)
LONGEST_NUMBER = 40
"""Characters of a number in a text: reading a longer one would take time for nothing."""

INT64 = 1 << 63
TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
FALSE = frozenset({"0", "off", "f", "false", "n", "no"})


def _integer(value: Any) -> Any:
    """A value as an integer, or as it is if it stands for none."""
    if isinstance(value, str):
        match = INTEGER.fullmatch(value) if len(value) <= LONGEST_NUMBER else None
        return int(match[1]) if match else value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < INT64 else value
    return int(value) if isinstance(value, bool) else value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or len(value) > LONGEST_NUMBER or not value.isascii():
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    return number if math.isfinite(number) else value


def _truth(value: Any) -> Any:
    if isinstance(value, str):
        lower = value.lower()
        return True if lower in TRUE else False if lower in FALSE else value
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else value


PLAIN: Mapping[str, tuple[type, Callable[[Any], Any]]] = {
    "stream": (bool, _truth),
    "n": (int, _integer),
    "max_tokens": (int, _integer),
    "max_completion_tokens": (int, _integer),
    "min_tokens": (int, _integer),
    "dimensions": (int, _integer),
    "truncate_prompt_tokens": (int, _integer),
    "temperature": (float, _number),
    "top_p": (float, _number),
    "min_p": (float, _number),
}
"""The fields that the gateway itself reads: their type, and how another one becomes it."""


def plainly(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields with every value in its own type; the very same object where nothing had to change."""
    changed: dict[str, Any] = {}
    for name, (kind, convert) in PLAIN.items():
        value = fields.get(name)
        if value is not None and type(value) is not kind:
            plain = convert(value)
            if plain is not value:
                changed[name] = plain
    options = fields.get("stream_options")
    if isinstance(options, dict) and not isinstance(options.get("include_usage"), bool | None):
        changed["stream_options"] = {**options, "include_usage": _truth(options["include_usage"])}
    return {**fields, **changed} if changed else fields
