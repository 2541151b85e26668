"""What a scripted model does with tools: the turns of a plan, chosen by the conversation alone.

A plan is a JSON list of turns. A turn has ``text``, ``reasoning`` and ``calls``, each of them optional:

    [{"text": "I read it.", "calls": [{"name": "Read", "arguments": {"file_path": "note.txt"}}]},
     {"text": "Done."}]

The number of tool results in a request says which turn comes next, so that any replica can play it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim_engine.examples import example_of


@dataclass(frozen=True)
class Call:
    """One call of a tool. ``arguments`` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Turn:
    """One scripted answer."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str = "stop"


Plan = tuple[Turn, ...]


def read_plan(given: str) -> Plan:
    """The plan in a JSON text, or in the file of that name.

    Raises:
        ValueError: it is not a list of turns.
        OSError: the file cannot be read.
    """
    if not given:
        return ()
    turns = json.loads(given if given.lstrip().startswith("[") else Path(given).read_text())
    try:
        return tuple(_turn(turn) for turn in turns)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"a plan is a list of turns with text, reasoning and calls: {error!r}") from error


def _turn(values: dict[str, Any]) -> Turn:
    calls = tuple(Call(call["name"], json.dumps(call["arguments"])) for call in values.get("calls", []))
    reason = "tool_calls" if calls else "stop"
    return Turn(values.get("text", ""), values.get("reasoning", ""), calls, reason)


def next_turn(plan: Plan, values: dict[str, Any]) -> Turn | None:
    """The turn that answers a chat request; None: the usual words.

    A tool that the request forces, or a schema that it asks for, is followed where no plan says how.

    Raises:
        ValueError: the plan calls a tool that the request does not offer.
    """
    offered = {tool["function"]["name"]: tool["function"] for tool in values.get("tools") or []}
    choice: Any = values.get("tool_choice") or "auto"
    if not offered or choice == "none":
        return _structured(values.get("response_format") or {})
    played = _played(plan, values["messages"]) if plan else None
    if played is not None and choice != "auto" and not {call.name for call in played.calls} & offered.keys():
        played = None  # the request wants a call, and the plan has none that it could want
    if played is None:
        return None if choice == "auto" else _forced(choice, offered)
    if missing := [call.name for call in played.calls if call.name not in offered]:
        raise ValueError(f"the plan calls {missing[0]!r}; the request offers {', '.join(offered)}")
    return played


def _forced(choice: Any, offered: dict[str, Any]) -> Turn:
    """A call of the named tool, else of the last: libraries add the tool for the answer's form behind others.

    As in vLLM, a call of a tool that the request names ends with ``stop``.
    """
    name, reason = (
        (list(offered)[-1], "tool_calls") if choice == "required" else (choice["function"]["name"], "stop")
    )
    arguments = example_of(offered[name].get("parameters") or {})
    return Turn(calls=(Call(name, json.dumps(arguments)),), finish_reason=reason)


def _played(plan: Plan, messages: list[dict[str, Any]]) -> Turn:
    """The first turn whose earlier calls all have results; after the last one, the last one again."""
    results = sum(message.get("role") == "tool" for message in messages)
    for turn in plan[:-1]:
        if results < len(turn.calls) or not turn.calls:
            return turn
        results -= len(turn.calls)
    return plan[-1]


def _structured(response_format: dict[str, Any]) -> Turn | None:
    match response_format.get("type"):
        case "json_schema":
            return Turn(text=json.dumps(example_of(response_format["json_schema"].get("schema") or {})))
        case "json_object":
            return Turn(text="{}")
    return None
