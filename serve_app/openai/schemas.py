"""Limits on schemas, grammars and regular expressions: an engine builds a grammar from each, on the event
loop that relays all tokens.

The cost there (vLLM 0.29, xgrammar, one core) grows with the cube of the depth; for a regular expression in a
schema with the square of its repetitions (19 s for ``[a-z]{10000,20000}``, which is 18 bytes); for an object
that counts its properties with their number times that count. The grammar is compiled on separate threads,
whose work grows with the square of an object's properties.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from serve_app.errors import BadRequest
from serve_app.json_errors import no_json
from serve_app.openai.depth import is_deeper, too_deep
from serve_app.openai.endless import endless_reference
from serve_app.settings import LimitSettings

COSTLY = (b'"pattern', b'"minProperties"', b'"maxProperties"', b'"$ref"')
"""Only schemas with one of these words, and schemas large enough to be wide, are examined in full."""

REGEXES = ("regex", "whitespace_pattern")
GUIDED = "guided_"
"""Older engines accept ``guided_json`` and similar fields instead of ``structured_outputs.json``."""

KINDS = ("json", "structural_tag", "grammar", "choice", *REGEXES)

CONSTRAINTS = frozenset(
    {
        "response_format",
        "output_config",
        "text",
        "structured_outputs",
        "tools",
        *(GUIDED + kind for kind in KINDS),
    }
)
"""The fields that may hold a schema, a grammar or a regular expression."""

TOKEN = re.compile(
    r"\\.|\[(?:\\.|[^\]\\])*\]|\{(?P<least>\d*)(?:,(?P<most>\d*))?\}|(?P<open>\()|(?P<close>\))|.", re.DOTALL
)
QUANTIFIERS = frozenset("*+?|^$")
MANY = 10**9
STRICT = b'"strict":true'
GRAMMAR = b'"grammar"'
SHOWN = 100
"""Characters of a reference that an error shows."""


def refuse_large_schemas(fields: Mapping[str, Any], limits: LimitSettings) -> None:
    """Check every schema, grammar and regular expression in a request, for all APIs of engines.

    Raises:
        BadRequest: one is too large, or would cost too much; ``param`` is the field.
    """
    if CONSTRAINTS.isdisjoint(fields):
        return
    for name, value in _constraints(fields, limits):
        kind = name.rpartition(".")[2].removeprefix(GUIDED)
        if kind in REGEXES:
            _refuse_patterns(name, [value] if isinstance(value, str) else [], limits)
        else:
            _refuse_schema(name, kind, value, limits)


def _is_offered(name: str) -> bool:
    """Whether it is a tool that the model may leave alone: vLLM builds no grammar for it, unless it is
    strict."""
    return name.startswith("tools[")


def _constraints(fields: Mapping[str, Any], limits: LimitSettings) -> Iterator[tuple[str, Any]]:
    """Every constraint with the path of its field. Tools that a request only offers do not constrain its
    answer, but an engine may build a grammar for each tool that is called."""
    for name in ("response_format", "output_config", "text"):
        if isinstance(fields.get(name), dict):
            yield name, fields[name]
    given = fields.get("structured_outputs")
    if isinstance(given, dict):
        yield from ((f"structured_outputs.{kind}", given[kind]) for kind in KINDS if given.get(kind))
    yield from ((GUIDED + kind, fields[GUIDED + kind]) for kind in KINDS if fields.get(GUIDED + kind))
    yield from _tools(fields, limits)


def _tools(fields: Mapping[str, Any], limits: LimitSettings) -> Iterator[tuple[str, Any]]:
    tools = fields.get("tools")
    if not isinstance(tools, list) or not tools:
        return
    if fields.get("tool_choice") not in (None, "auto", "none", {"type": "auto"}, {"type": "none"}):
        yield "tools", tools  # one grammar for all of them
    elif not _is_harmless(msgspec.json.encode(tools), limits):  # most lists of tools are harmless as a whole
        yield from ((f"tools[{number}]", tool) for number, tool in enumerate(tools))


def _is_harmless(encoded: bytes, limits: LimitSettings) -> bool:
    """Whether it is neither long, nor wide (each property has a colon), nor costly, by a scan of its
    bytes."""
    if len(encoded) > limits.max_schema_bytes or encoded.count(b":") > limits.max_schema_properties:
        return False
    return not any(word in encoded for word in COSTLY)


def _refuse_schema(name: str, kind: str, value: Any, limits: LimitSettings) -> None:
    encoded = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    if len(encoded) > limits.max_schema_bytes:
        raise BadRequest(
            f"`{name}` is {len(encoded)} bytes long; at most {limits.max_schema_bytes} "
            "(limits.max_schema_bytes).",
            param=name,
            code="schema_too_large",
        )
    if kind in ("grammar", "choice"):
        if kind == "grammar" and not limits.allow_grammars:
            raise _no_grammars(name)
        return
    if isinstance(value, str):
        value = _decoded(name, encoded, limits)
        encoded = msgspec.json.encode(value)  # a text may write a name with escapes
    if not limits.allow_grammars and GRAMMAR in encoded and _holds_a_grammar(value):
        raise _no_grammars(name)
    if not _is_harmless(encoded, limits):
        _refuse_costly(name, value, limits)
        if not _is_offered(name) or STRICT in encoded:
            _refuse_endless(name, {"schema": value} if kind == "json" else value)


def _no_grammars(name: str) -> BadRequest:
    return BadRequest(
        f"`{name}` has a grammar, and grammars are switched off here (limits.allow_grammars).",
        param=name,
        code="grammars_not_allowed",
    )


def _holds_a_grammar(value: Any) -> bool:
    """A structural tag may have one at any depth."""
    return any(
        each.get("type") == "grammar" and isinstance(each.get("grammar"), str) for each in _objects(value)
    )


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value, at any depth."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left += value.values()
        elif isinstance(value, list):
            left += value


def _decoded(name: str, encoded: bytes, limits: LimitSettings) -> Any:
    """A schema that was sent as text.

    Raises:
        BadRequest: it is not JSON, or nested too deeply.
    """
    try:
        value = msgspec.json.decode(encoded)
    except msgspec.DecodeError as error:
        raise BadRequest(
            f"`{name}` is not valid JSON: {no_json(error, encoded)}.", param=name, code="invalid_json"
        ) from error
    except RecursionError:
        raise too_deep(name, limits.max_json_depth) from None
    if isinstance(value, dict | list) and is_deeper(value, limits.max_json_depth):
        raise too_deep(name, limits.max_json_depth)
    return value


def _refuse_costly(name: str, schema: Any, limits: LimitSettings) -> None:
    found = Costly([])
    found.examine(schema)
    if found.most_properties > limits.max_schema_properties:
        raise BadRequest(
            f"`{name}` has an object with {found.most_properties} properties; at most "
            f"{limits.max_schema_properties} (limits.max_schema_properties).",
            param=name,
            code="schema_too_costly",
        )
    _refuse_patterns(name, found.patterns, limits)
    if found.counted_properties > limits.max_counted_properties:
        raise BadRequest(
            f"`{name}` has {found.counted_properties} properties in objects with `minProperties` or "
            f"`maxProperties`; at most {limits.max_counted_properties} (limits.max_counted_properties).",
            param=name,
            code="schema_too_costly",
        )


def _refuse_endless(name: str, constraint: Any) -> None:
    if (reference := endless_reference(constraint)) is not None:
        raise BadRequest(
            f"`{name}` has a schema that no value matches: `$ref` to {reference[:SHOWN]!r} leads back to "
            "itself, and nothing on the way may end or be left out.",
            param=name,
            code="schema_endless",
        )


@dataclass(slots=True)
class Costly:
    """The parts of a schema that cost more than their length: regular expressions, the properties of the
    widest object, and the properties of objects that count them."""

    patterns: list[str]
    most_properties: int = 0
    counted_properties: int = 0

    def examine(self, schema: Any) -> None:
        for each in _objects(schema):
            self._object(each)

    def _object(self, schema: dict[str, Any]) -> None:
        if isinstance(pattern := schema.get("pattern"), str):
            self.patterns.append(pattern)
        if isinstance(named := schema.get("patternProperties"), dict):
            self.patterns += named
        if isinstance(properties := schema.get("properties"), dict):
            self.most_properties = max(self.most_properties, len(properties))
            if "minProperties" in schema or "maxProperties" in schema:
                self.counted_properties += len(properties)


def _refuse_patterns(name: str, patterns: list[str], limits: LimitSettings) -> None:
    """Check all patterns together: their sizes add up, and the squares of their repetitions do."""
    size = sum(len(pattern.encode()) for pattern in patterns)
    if size > limits.max_pattern_bytes:
        raise BadRequest(
            f"`{name}` holds {size} bytes of regular expressions; at most {limits.max_pattern_bytes} "
            "(limits.max_pattern_bytes).",
            param=name,
            code="pattern_too_large",
        )
    repeats = math.hypot(*(multiplied_out(pattern) for pattern in patterns))
    if repeats > limits.max_pattern_repeats:
        raise BadRequest(
            f"`{name}` repeats parts of a regular expression {repeats:.0f} times, multiplied out; at most "
            f"{limits.max_pattern_repeats} (limits.max_pattern_repeats).",
            param=name,
            code="pattern_too_costly",
        )


def multiplied_out(pattern: str) -> int:
    """How many characters or classes the pattern has when counted repetitions are written out: 60 for
    ``(ab{2,9}){6}``; 0 without repetitions. Groups that are not closed are ignored."""
    if "{" not in pattern:
        return 0
    sizes, last, repeats = [0], 0, False
    for token in TOKEN.finditer(pattern):
        if token["open"]:
            sizes.append(0)
            last = 0
        elif token["close"] and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif token["least"] or token["most"]:
            count = max(_times(token["least"]), _times(token["most"]))
            sizes[-1] += last * (count - 1)
            last *= count
            repeats = True
        elif token[0] not in QUANTIFIERS:
            last = 1
            sizes[-1] += 1
    return sum(sizes) if repeats else 0


def _times(digits: str | None) -> int:
    """Large numbers are cut off: they exceed every limit, and Python refuses to convert very long ones."""
    return min(MANY, int(digits[:10])) if digits else 1
