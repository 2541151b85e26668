"""Variables in texts: ``{{name}}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


def filled(text: str, variables: Mapping[str, str]) -> str:
    """The text with values in the place of names, once: what a value holds is not filled again. Names that
    are not known become empty; :func:`missing` tells them."""
    return VARIABLE.sub(lambda found: variables.get(found[1], ""), text)


def missing(text: str, variables: Mapping[str, str]) -> list[str]:
    """The names in a text that have no value."""
    return sorted(set(VARIABLE.findall(text)) - variables.keys())


def as_text(value: Any) -> str | None:
    """A variable's value as it stands in a text; ``None`` if it is neither text nor a number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """A value of lists and mappings with all its texts changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each_text(inner, change) for inner in value]
    if isinstance(value, dict):
        return {key: each_text(inner, change) for key, inner in value.items()}
    return value
