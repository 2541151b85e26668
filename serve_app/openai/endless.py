"""Schemas that no finite JSON value matches, because they refer to themselves without a way out.

An engine starts such an answer (it has to process the prompt), then finds no token that the grammar
allows, and fails: for ``{"$ref": "#"}`` vLLM 0.29 answers 500, as if the engine were at fault. A schema that
refers to itself where a value may end (a tree whose children may be an empty list) is sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ROOTS = ("schema", "parameters", "input_schema")
"""The keys under which requests hold a schema, of an answer or of a tool's arguments."""

EXAMPLES = "input_examples"
"""Of a tool's arguments: any keys may stand there."""


def endless_reference(constraint: Any) -> str | None:
    """The first ``$ref`` from which every path of a schema in ``constraint`` leads on without end; ``None``:
    each of its schemas has a value. Takes time in proportion to the size."""
    return next((found for schema in _schemas(constraint) if (found := _endless(schema))), None)


def _schemas(value: Any) -> Iterator[Any]:
    """The outermost schemas: references count from there. ``json_schema`` is a schema in a structural tag,
    and holds one with its name in a ``response_format``."""
    left = [value]
    while left:
        outer = left.pop()
        if isinstance(outer, list):
            left += outer
        for key, inner in outer.items() if isinstance(outer, dict) else ():
            named = key == "json_schema" and isinstance(inner, dict) and "schema" not in inner
            if named or key in ROOTS:
                yield inner
            elif key != EXAMPLES:
                left.append(inner)


def _endless(root: Any) -> str | None:
    """A schema has a value once what it needs has one: it spreads from those that need nothing. What it has
    not reached at the end has none."""
    schemas: dict[int, Any] = {}
    missing: dict[int, int] = {}
    needed_by: dict[int, list[int]] = {}
    left = [root]
    while left:
        schema = left.pop()
        if id(schema) in schemas:
            continue
        schemas[id(schema)] = schema
        missing[id(schema)], inner = _needs(schema, root)
        left += inner
        for each in inner:
            needed_by.setdefault(id(each), []).append(id(schema))
    reached = [each for each, number in missing.items() if not number]
    while reached:
        for each in needed_by.get(reached.pop(), ()):
            missing[each] -= 1
            if not missing[each]:
                reached.append(each)
    if missing[id(root)] <= 0:
        return None
    left = [schemas[each] for each, number in missing.items() if number > 0]
    return str(next(each["$ref"] for each in left if "$ref" in each))  # no circle without a reference


def _needs(schema: Any, root: Any) -> tuple[int, list[Any]]:
    """How many of which inner schemas must have a value, in the order in which vLLM's grammars look at the
    keywords. Keywords whose inner schemas may be left out need none."""
    if not isinstance(schema, dict):
        return 0, []
    if isinstance(reference := schema.get("$ref"), str):
        target = _resolved(reference, root)
        return (0, []) if target is None else (1, [target])
    if "const" in schema or "enum" in schema:
        return 0, []
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list) and choices:
            return 1, choices
    if isinstance(every := schema.get("allOf"), list) and len(every) == 1:  # of several they make any value
        return 1, every
    needed = [*_required(schema), *_least_items(schema)]
    return len(needed), needed


def _required(schema: dict[str, Any]) -> Iterator[Any]:
    names, properties = schema.get("required"), schema.get("properties")
    if schema.get("type") == "object" and isinstance(names, list) and isinstance(properties, dict):
        yield from (properties[name] for name in names if isinstance(name, str) and name in properties)


def _least_items(schema: dict[str, Any]) -> Iterator[Any]:
    least = schema.get("minItems")
    if schema.get("type") != "array" or not isinstance(least, int) or least < 1:
        return
    first = schema.get("prefixItems")
    first = first if isinstance(first, list) else []
    yield from first[:least]
    if least > len(first) and "items" in schema:
        yield schema["items"]


def _resolved(reference: str, root: Any) -> Any:
    """What a JSON pointer names as vLLM's grammars read it (empty parts count for nothing); ``None``:
    nothing, or something outside the schema, which the engine reports or takes for any value."""
    if not reference.startswith("#") or reference[1:2] not in ("", "/"):
        return None
    found = root
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and len(name) < 8 and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
