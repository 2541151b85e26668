"""JSON as tokens may hold it: with a name twice, two readers could see two different tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from json import JSONDecoder
from typing import Any


class StrictDecoder(JSONDecoder):
    """Refuses names that come twice, and numbers that JSON does not have. Raises: ValueError."""

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=_unique, parse_constant=_refuse)


def read_object(data: bytes) -> dict[str, Any]:
    """Raises: ValueError: it is no object, holds a name twice, or is nested too deeply."""
    try:
        found = json.loads(data, cls=StrictDecoder)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
