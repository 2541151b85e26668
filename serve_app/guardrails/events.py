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
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            number = call.get("index")
            channel = (index, name, number if isinstance(number, int) else place)
            yield Piece(channel, function, "arguments")


def index_of(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def other_values(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """What else a choice says that holds texts, such as a list of content parts: where it stands."""
    said = _delta(choice)
    for name, value in said.items():
        if isinstance(value, list | dict) and name not in CALLS and name not in NO_TEXT:
            yield said, name


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
    return all(
        isinstance(call, dict)
        and not call.get("id")
        and not (call.get("function") or {}).get("name")
        and not (call.get("function") or {}).get("arguments")
        for call in value
    )


def event_with(like: Mapping[str, Any], channel: Channel, text: str) -> dict[str, Any]:
    """An event with this text alone; its other fields as ``like`` has them."""
    index, field, number = channel
    choice: dict[str, Any] = {"index": index}
    if field == "text":
        choice["text"] = text
    elif field == "tool_calls":
        choice["delta"] = {field: [{"index": number, "function": {"arguments": text}}]}
    elif field == "function_call":
        choice["delta"] = {field: {"arguments": text}}
    else:
        choice["delta"] = {field: text}
    choice |= {"logprobs": None, "finish_reason": None}
    return {name: value for name, value in like.items() if name != "usage"} | {"choices": [choice]}
