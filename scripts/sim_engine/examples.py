"""A small JSON value that fits a schema, as a model with guided decoding would write."""

from __future__ import annotations

from typing import Any

PLAIN = {"string": "word", "integer": 1, "number": 1.5, "boolean": True, "null": None}
ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def example_of(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """The first value that the schema allows; optional fields are left out, lists have one item.

    Bounds and patterns are not looked at.
    """
    root = schema if root is None else root
    if "$ref" in schema:
        return example_of(_target(schema["$ref"], root), root)
    for name in ALTERNATIVES:
        if name in schema:
            return example_of(schema[name][0], root)
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    return schema["enum"][0] if "enum" in schema else _of_type(schema, root)


def _of_type(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return [example_of(schema["items"], root)] if "items" in schema else []
    if kind == "object":
        fields = schema.get("properties", {})
        return {name: example_of(fields[name], root) for name in schema.get("required", []) if name in fields}
    return PLAIN[kind]


def _target(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    """What ``#/$defs/name`` means in the document."""
    node = root
    for step in reference.removeprefix("#/").split("/"):
        node = node[step]
    return node
