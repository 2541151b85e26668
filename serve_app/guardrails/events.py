"""The texts within one event of a streamed chat or text completion, and events made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.guardrails.texts import NO_TEXT, REASONING

SHOWS_TEXT = ("logprobs", "token_ids", "prompt_token_ids", "prompt_logprobs", "prompt_text", "words")
"""Fields of an answer that tell its text, or the prompt's, once more."""

Channel = tuple[int, str, int]
"""One text of a stream: its choice, its field, and the number of its tool call (0 for any other)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text: ``holder[key]``, at its place in the event."""

    channel: Channel
    holder: dict[str, Any]
    key: str

    @property
    def text(self) -> str:
        text: str = self.holder[self.key]
        return text

    @property
    def kind(self) -> str:
        return kind_of(self.channel)


def kind_of(channel: Channel) -> str:
    field = channel[1]
    if field in CALLS:
        return "arguments"
    return "reasoning" if field in REASONING else "text"


CALLS = ("tool_calls", "function_call")
CUSTOM = "custom"
CUSTOM_INPUT = "tool_calls.custom"
"""The field of a custom tool's input, in its channel."""


def part_of(channel: Channel) -> str:
    """What of an answer it belongs to: one part has ended where the next one begins. Tool calls are one."""
    return "calls" if channel[1] in (*CALLS, CUSTOM_INPUT) else kind_of(channel)


def pieces(choice: Mapping[str, Any]) -> Iterator[Piece]:
    """The parts of texts in one choice of an event."""
    index = index_of(choice)
    if isinstance(choice, dict) and isinstance(choice.get("text"), str):
        yield Piece((index, "text", 0), choice, "text")
    said = _delta(choice)
    for name, value in said.items():
        if isinstance(value, str) and name not in NO_TEXT:
            yield Piece((index, name, 0), said, name)
        elif name in CALLS:
            yield from _arguments(index, name, value)


def calls_a_tool(choice: Mapping[str, Any]) -> bool:
    """Whether it begins or goes on with one."""
    return any(_delta(choice).get(name) for name in CALLS)


def _delta(choice: Mapping[str, Any]) -> dict[str, Any]:
    said = choice.get("delta")
    return said if isinstance(said, dict) else {}


def _arguments(index: int, name: str, value: Any) -> Iterator[Piece]:
    for place, call in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(call, dict):
            continue
        given = call.get("index")
        number = given if isinstance(given, int) else place
        function, custom = call.get("function", call), call.get(CUSTOM)
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            yield Piece((index, name, number), function, "arguments")
        if isinstance(custom, dict) and isinstance(custom.get("input"), str):
            yield Piece((index, CUSTOM_INPUT, number), custom, "input")


def index_of(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def other_values(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """What else a choice says that holds texts, such as a list of content parts or the name of a tool: where
    it stands."""
    said = _delta(choice)
    for name, value in said.items():
        if name in CALLS:
            for call in value if isinstance(value, list) else [value]:
                yield from _beside_arguments(call)
        elif isinstance(value, list | dict) and name not in NO_TEXT:
            yield said, name


def _beside_arguments(call: Any, in_pieces: str = "arguments") -> Iterator[tuple[dict[str, Any], str]]:
    """The texts of a call that do not come in pieces."""
    if not isinstance(call, dict):
        return
    if "function" in call:  # the arguments are there
        in_pieces = ""
    for name, value in call.items():
        if name == "function" and isinstance(value, dict):
            yield from _beside_arguments(value)
        elif name == CUSTOM and isinstance(value, dict):
            yield from _beside_arguments(value, "input")
        elif name not in NO_TEXT and (
            isinstance(value, list | dict) or (name != in_pieces and _is_said(value))
        ):
            yield call, name


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def hide_copies(holder: dict[str, Any]) -> None:
    """Take out of an event, answer or choice what tells a text once more."""
    for name in SHOWS_TEXT:
        if holder.get(name) is not None:
            holder[name] = None


def is_idle(event: Mapping[str, Any]) -> bool:
    """Whether nothing is left in the event that a client would miss."""
    return event.get("usage") is None and all(map(_is_idle_choice, event.get("choices") or ()))


def _is_idle_choice(choice: Mapping[str, Any]) -> bool:
    if choice.get("finish_reason") is not None or choice.get("text"):
        return False
    said = choice.get("delta") or {}
    return all(_is_idle_field(name, value) for name, value in said.items())


def _is_idle_field(name: str, value: Any) -> bool:
    if name != "tool_calls" or not isinstance(value, list):
        return not value
    return all(map(_is_idle_call, value))


def _is_idle_call(call: Any) -> bool:
    return isinstance(call, dict) and not any(
        value and not (name in ("function", CUSTOM) and _is_idle_call(value))
        for name, value in call.items()
        if name not in ("index", "type")
    )


def event_with(like: Mapping[str, Any], channel: Channel, text: str) -> dict[str, Any]:
    """An event with this text alone; its other fields as ``like`` has them."""
    index, field, number = channel
    choice: dict[str, Any] = {"index": index}
    if field == "text":
        choice["text"] = text
    elif field == "tool_calls":
        choice["delta"] = {field: [{"index": number, "function": {"arguments": text}}]}
    elif field == CUSTOM_INPUT:
        choice["delta"] = {"tool_calls": [{"index": number, CUSTOM: {"input": text}}]}
    elif field == "function_call":
        choice["delta"] = {field: {"arguments": text}}
    else:
        choice["delta"] = {field: text}
    choice |= {"logprobs": None, "finish_reason": None}
    return {name: value for name, value in like.items() if name != "usage"} | {"choices": [choice]}
