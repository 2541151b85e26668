"""Data sets of ragas: JSON lines, JSON or CSV with `user_input`, `reference`, `retrieved_contexts`; before
version 0.2 `question`, `ground_truth` (or a list `ground_truths`), `contexts`.

Its metrics are not in the data. A judge compares with the reference; `reference_tool_calls` are called. The
answer in the file (`response`, `answer`) is not used: the target gives its own.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from serve_app.evaluation.document import Document, Keys
from serve_app.evaluation.formats.contract import Converting, Format, first_of, joined, rows

QUESTION = ("user_input", "question")
REFERENCE = ("reference", "ground_truth", "ground_truths")
CONTEXTS = ("retrieved_contexts", "contexts", "reference_contexts")
ROLES = {"human": "user", "ai": "assistant", "tool": "tool"}


def matches(document: Document) -> bool:
    found = rows(document)
    return found is not None and any(
        "user_input" in row or ("question" in row and not set(REFERENCE).isdisjoint(row)) for row in found
    )


def convert(document: Document, path: Path) -> Document:
    found = Converting(document)
    for number, row in enumerate(rows(document) or []):
        _sample(row, number, found)
    return found.result(path.stem, [{"scorer": "judge"}])


def _sample(row: dict[str, Any], number: int, found: Converting) -> None:
    keys: Keys = (number,)
    case: dict[str, Any] = {"id": f"sample-{number + 1}", "template": False}
    asked = first_of(row, QUESTION)
    if isinstance(asked, str):
        case["prompt"] = asked
        case["variables"] = {"question": asked}
        if (context := joined(_list(first_of(row, CONTEXTS)))) is not None:
            case["variables"]["context"] = context
    elif isinstance(asked, list) and (messages := _messages(asked)):
        case["messages"] = messages
    else:
        found.wrong(keys, "user_input: expected text, or messages of which one is `human`")
        return
    reference = _list(first_of(row, REFERENCE))
    expected = reference[0] if isinstance(reference, list) and reference else reference
    calls = row.get("reference_tool_calls")
    if not isinstance(expected, str) and not calls:
        found.wrong(keys, "reference: missing (metrics without a reference are not read)")
        return
    case["expected"] = expected
    if calls:
        try:
            wanted = [{"name": call["name"], "arguments": call["args"]} for call in calls]
        except (KeyError, TypeError):
            found.wrong((*keys, "reference_tool_calls"), "expected a list of calls with `name` and `args`")
            return
        judged = [{"scorer": "judge"}] if isinstance(expected, str) else []
        case["assertions"] = [{"scorer": "tool-calls", "value": wanted}, *judged]
    found.add(case, keys)


def _list(value: Any) -> Any:
    """Tables hold lists as Python or JSON writes them."""
    if isinstance(value, str) and value.startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                return read(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    return value


def _messages(turns: list[Any]) -> list[dict[str, Any]]:
    """A conversation up to the last thing that the human said; what follows there is the file's own
    answer."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        kind = turn.get("type") if isinstance(turn, dict) else None
        calls = turn.get("tool_calls") or [] if isinstance(turn, dict) else []
        if not isinstance(kind, str) or kind not in ROLES or not isinstance(calls, list):
            return []
        if not isinstance(turn.get("content"), str):
            return []
        message: dict[str, Any] = {"role": ROLES[kind], "content": turn["content"]}
        if calls:
            message["tool_calls"] = [_call(call, len(messages), place) for place, call in enumerate(calls)]
        if kind == "tool":
            message["tool_call_id"] = _call_id(messages)
        messages.append(message)
    while messages and messages[-1]["role"] != "user":
        messages.pop()
    return messages


def _call(call: Any, turn: int, place: int) -> dict[str, Any]:
    call = call if isinstance(call, dict) else {}
    function = {"name": str(call.get("name", "")), "arguments": json.dumps(call.get("args", {}))}
    return {"id": f"call-{turn}-{place}", "type": "function", "function": function}


def _call_id(messages: list[dict[str, Any]]) -> str:
    """The results of calls come in their order."""
    results = 0
    for message in reversed(messages):
        if message["role"] == "tool":
            results += 1
        else:
            calls = message.get("tool_calls", [])
            return str(calls[results]["id"]) if results < len(calls) else f"call-{len(messages)}"
    return f"call-{len(messages)}"


RAGAS = Format("ragas", matches, convert)
