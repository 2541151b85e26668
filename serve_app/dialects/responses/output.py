"""The items of a response while they are made, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from serve_app.dialects.hidden import hidden_reasoning
from serve_app.dialects.responses.tools import FUNCTION, Tool, call_item

encode = msgspec.json.Encoder().encode


class Events:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self.next = 0

    def event(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        data = encode({"type": kind, "sequence_number": self.next, **fields})
        self.next += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def delta(self, head: bytes, text: str) -> bytes:
        """An event of one token: its ``head`` was written once (see ``delta_head``)."""
        number = self.next
        self.next += 1
        return b'%b%d,"delta":%b}\n\n' % (head, number, encode(text))


def delta_head(kind: str, fields: Mapping[str, Any]) -> bytes:
    """A delta event up to its number."""
    data = encode({"type": kind, **fields})
    return b'event: %b\ndata: %b,"sequence_number":' % (kind.encode(), data[:-1])


class Item(Protocol):
    """One item of a response. ``result`` is the whole item once it is closed."""

    result: dict[str, Any]

    def opened(self, events: Events) -> bytes: ...
    def closed(self, events: Events, status: str) -> bytes: ...


class Message:
    """The text of an answer."""

    def __init__(self, item_id: str, place: int) -> None:
        self._id = item_id
        self.result: dict[str, Any] = {}
        self._place = place
        self._texts: list[str] = []
        self._logprobs: list[Mapping[str, Any]] = []
        at = {"item_id": item_id, "output_index": place, "content_index": 0}
        self._at = at
        self._head = delta_head("response.output_text.delta", {**at, "logprobs": []})

    def delta(self, events: Events, text: str, logprobs: Sequence[Mapping[str, Any]] = ()) -> bytes:
        self._texts.append(text)
        if logprobs:
            self._logprobs += logprobs
            fields = {**self._at, "delta": text, "logprobs": logprobs}
            return events.event("response.output_text.delta", fields)
        return events.delta(self._head, text)

    def opened(self, events: Events) -> bytes:
        item = {
            "id": self._id,
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        added = events.event("response.output_item.added", {"output_index": self._place, "item": item})
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return added + events.event("response.content_part.added", {**self._at, "part": part})

    def closed(self, events: Events, status: str) -> bytes:
        self.result = item = self._value(status)
        (part,) = item["content"]
        done = {**self._at, "text": part["text"], "logprobs": part["logprobs"]}
        return (
            events.event("response.output_text.done", done)
            + events.event("response.content_part.done", {**self._at, "part": part})
            + events.event("response.output_item.done", {"output_index": self._place, "item": item})
        )

    def _value(self, status: str) -> dict[str, Any]:
        text = "".join(self._texts)
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs}
        return {
            "id": self._id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [part],
        }


class Reasoning:
    """What a model thought, as it is: no summary is made. ``hides``: the client wants to send it back itself
    (``include: reasoning.encrypted_content``)."""

    def __init__(self, item_id: str, place: int, *, hides: bool) -> None:
        self._id = item_id
        self.result: dict[str, Any] = {}
        self._place = place
        self._hides = hides
        self._texts: list[str] = []
        at = {"item_id": item_id, "output_index": place, "content_index": 0}
        self._at = at
        self._head = delta_head("response.reasoning_text.delta", at)

    def delta(self, events: Events, text: str) -> bytes:
        self._texts.append(text)
        return events.delta(self._head, text)

    def opened(self, events: Events) -> bytes:
        item = {"id": self._id, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
        added = events.event("response.output_item.added", {"output_index": self._place, "item": item})
        part = {"type": "reasoning_text", "text": ""}
        return added + events.event("response.content_part.added", {**self._at, "part": part})

    def closed(self, events: Events, status: str) -> bytes:
        self.result = item = self._value(status)
        (part,) = item["content"]
        return (
            events.event("response.reasoning_text.done", {**self._at, "text": part["text"]})
            + events.event("response.content_part.done", {**self._at, "part": part})
            + events.event("response.output_item.done", {"output_index": self._place, "item": item})
        )

    def _value(self, status: str) -> dict[str, Any]:
        text = "".join(self._texts)
        item: dict[str, Any] = {
            "id": self._id,
            "type": "reasoning",
            "status": status,
            "summary": [],
            "content": [{"type": "reasoning_text", "text": text}],
        }
        if self._hides:
            item["encrypted_content"] = hidden_reasoning(text)
        return item


class Call:
    """A tool call. Only a function's arguments are streamed: those of other tools stand in another form in
    the arguments that the model writes, and come whole."""

    def __init__(self, item_id: str, place: int, tool: Tool, call_id: str) -> None:
        self._id = item_id
        self.result: dict[str, Any] = {}
        self._place = place
        self._tool = tool
        self.call_id = call_id
        self._arguments: list[str] = []
        self._at = {"item_id": item_id, "output_index": place}
        self._head = delta_head("response.function_call_arguments.delta", self._at)

    def delta(self, events: Events, arguments: str) -> bytes:
        self._arguments.append(arguments)
        return events.delta(self._head, arguments) if self._tool.kind == FUNCTION else b""

    def opened(self, events: Events) -> bytes:
        item = self._value("", "in_progress")
        return events.event("response.output_item.added", {"output_index": self._place, "item": item})

    def closed(self, events: Events, status: str) -> bytes:
        given = b""
        if self._tool.kind == FUNCTION and status == "completed" and not any(self._arguments):
            given = self.delta(events, "{}")  # some parsers write nothing for no arguments, which is no JSON
        self.result = item = self._value("".join(self._arguments), status)
        ending = self._ending(events, item)  # before the item's own event, which takes the next number
        done = {"output_index": self._place, "item": item}
        return given + ending + events.event("response.output_item.done", done)

    def _ending(self, events: Events, item: Mapping[str, Any]) -> bytes:
        """The end of what the tool is given, where such events exist."""
        if self._tool.kind == FUNCTION:
            fields = {**self._at, "name": self._tool.name, "arguments": item["arguments"]}
            return events.event("response.function_call_arguments.done", fields)
        if self._tool.kind == "custom":
            text, kind = item["input"], "response.custom_tool_call_input"
            delta = events.event(f"{kind}.delta", {**self._at, "delta": text})
            return delta + events.event(f"{kind}.done", {**self._at, "input": text})
        return b""

    def _value(self, arguments: str, status: str) -> dict[str, Any]:
        return call_item(self._tool, self._id, self.call_id, arguments, status)
