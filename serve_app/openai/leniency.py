"""Accepts numbers and booleans in vLLM's forms: ``max_tokens: 5.0``, ``"5"``, ``stream: "true"``.

vLLM reads requests with pydantic's lax mode. Clients that were written for it, and languages whose numbers
are all floats, rely on that. Such values are converted to the field's own type before any other code reads
them, so 5.0 and 5 are the same request to the cache, and engines get the values that were checked. Values
that vLLM would refuse stay unchanged; the typed parsing that follows refuses them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

INTEGER = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*", re.ASCII)
LONGEST_NUMBER = 40
"""Most characters of a number in a text; converting longer ones would only cost time."""

INT64 = 1 << 63
TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
FALSE = frozenset({"0", "off", "f", "false", "n", "no"})


def _integer(value: Any) -> Any:
    """The value as an integer; unchanged if it does not represent one."""
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


def is_true(field: str | None) -> bool:
    """Whether vLLM reads a form's field as true."""
    return _truth(field) is True


def _truth(value: Any) -> Any:
    if isinstance(value, str):
        lower = value.lower()
        return True if lower in TRUE else False if lower in FALSE else value
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else value


Conversions = Mapping[str, tuple[type, Callable[[Any], Any]]]
"""The type of each field, and the conversion from other types."""

PLAIN: Conversions = {
    "stream": (bool, _truth),
    "n": (int, _integer),
    "max_tokens": (int, _integer),
    "max_completion_tokens": (int, _integer),
    "min_tokens": (int, _integer),
    "dimensions": (int, _integer),
    "truncate_prompt_tokens": (int, _integer),
    "parallel_tool_calls": (bool, _truth),
    "temperature": (float, _number),
    "top_p": (float, _number),
    "min_p": (float, _number),
}
"""The fields of chats, completions, Messages and embeddings that the gateway reads."""

PLAIN_RESPONSES: Conversions = {
    "max_output_tokens": (int, _integer),
    "top_logprobs": (int, _integer),
    "store": (bool, _truth),
    "background": (bool, _truth),
    **{name: PLAIN[name] for name in ("stream", "parallel_tool_calls", "temperature", "top_p")},
}
"""Those of the Responses API; a chat's ``top_logprobs`` is never converted, as vLLM refuses a text there."""


def plainly(fields: Mapping[str, Any], conversions: Conversions = PLAIN) -> Mapping[str, Any]:
    """The fields with every value in its own type; the same object if nothing had to change."""
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if value is not None and name in conversions:
            kind, convert = conversions[name]
            plain = value if type(value) is kind else convert(value)
            if plain is not value:
                changed[name] = plain
    options = fields.get("stream_options")
    if isinstance(options, dict) and not isinstance(options.get("include_usage"), bool | None):
        changed["stream_options"] = {**options, "include_usage": _truth(options["include_usage"])}
    return {**fields, **changed} if changed else fields
