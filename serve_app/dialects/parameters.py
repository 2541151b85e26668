"""JSON schemas for the parameters of tools that clients run without sending one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STRING = {"type": "string"}


def closed_object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """An object that has no other fields."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}
