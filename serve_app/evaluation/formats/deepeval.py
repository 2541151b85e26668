"""Goldens of deepeval: JSON or CSV with `input`, `expected_output`, `expected_tools`, `context`.

Goldens have no metrics. A judge compares with `expected_output`; `expected_tools` are called.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from serve_app.evaluation.document import Document, Key, Keys
from serve_app.evaluation.formats.contract import Converting, Format, first_of, joined

EXPECTED = ("expected_output", "expectedOutput")
TOOLS = ("expected_tools", "expectedTools")
CONTEXTS = ("retrieval_context", "retrievalContext", "context")
OURS = frozenset({*EXPECTED, *TOOLS, "actual_output", "actualOutput"})
CONVERSATION = frozenset({"scenario", "turns"})


def matches(document: Document) -> bool:
    goldens, _ = _goldens(document)
    return any(
        isinstance(row, dict) and not (OURS if "input" in row else CONVERSATION).isdisjoint(row)
        for row in goldens
    )


def convert(document: Document, path: Path) -> Document:
    found = Converting(document)
    goldens, keys = _goldens(document)
    for number, row in enumerate(goldens):
        if isinstance(row, dict):
            _golden(row, number, (*keys, number), found)
        else:
            found.wrong((*keys, number), "expected a golden")
    return found.result(path.stem, [{"scorer": "judge"}])


def _goldens(document: Document) -> tuple[list[Any], Keys]:
    """Also those of a file with several kinds: ``{"goldens": [...]}``."""
    value, keys = document.value, tuple[Key, ...]()
    if isinstance(value, dict) and isinstance(value.get("goldens"), list):
        value, keys = value["goldens"], ("goldens",)
    return (value if isinstance(value, list) else []), keys


def _golden(row: dict[str, Any], number: int, keys: Keys, found: Converting) -> None:
    if not CONVERSATION.isdisjoint(row):
        found.wrong(keys, "goldens of whole conversations (`scenario`, `turns`) are not read")
        return
    asked = row.get("input")
    if not isinstance(asked, str) or not asked.strip():
        found.wrong(keys, "input: expected text")
        return
    case: dict[str, Any] = {"id": f"golden-{number + 1}", "prompt": asked, "template": False}
    case["variables"] = {"question": asked}
    if (context := joined(first_of(row, CONTEXTS))) is not None:
        case["variables"]["context"] = context
    expected, tools = first_of(row, EXPECTED), _tools(row, keys, found)
    if expected is None and tools is None:
        found.wrong(keys, "expected_output: missing, and there are no `expected_tools`")
        return
    case["expected"] = expected
    if tools is not None:
        judged = [{"scorer": "judge"}] if expected is not None else []
        case["assertions"] = [{"scorer": "tool-calls", "value": tools}, *judged]
    found.add(case, keys)


def _tools(row: dict[str, Any], keys: Keys, found: Converting) -> list[dict[str, Any]] | None:
    given = first_of(row, TOOLS)
    if given is None:
        return None
    try:
        tools = json.loads(given) if isinstance(given, str) else given
        return [_call(tool) for tool in tools]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found.wrong((*keys, "expected_tools"), "expected a list of tools with `name` (as JSON in a table)")
        return None


def _call(tool: dict[str, Any]) -> dict[str, Any]:
    call: dict[str, Any] = {"name": tool["name"]}
    arguments = first_of(tool, ("input_parameters", "inputParameters"))
    return call if arguments is None else {**call, "arguments": arguments}


DEEPEVAL = Format("deepeval", matches, convert)
