"""A response that was stored, and one that is not finished: their JSON and their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from serve_app.dialects.responses.ids import ItemIds
from serve_app.dialects.responses.output import Call, Events, Item, Message, Reasoning
from serve_app.dialects.responses.request import TypedRequest, echo
from serve_app.dialects.responses.tools import FUNCTION, Tool

LAST = {"completed": "response.completed", "incomplete": "response.incomplete"}
"""The last event by the response's status; any other status is reported as a failure."""


def queued(asked: TypedRequest, ids: ItemIds, created: int) -> bytes:
    """A background response before it has begun. ``created``: Unix seconds."""
    return msgspec.json.encode(
        {
            **echo(asked, ids.response, stored=True),
            "created_at": created,
            "completed_at": None,
            "status": "queued",
            "model": asked.request.model,
            "output": [],
            "usage": None,
            "error": None,
            "incomplete_details": None,
        }
    )


def events_of(response: bytes) -> bytes:
    """A finished response as a stream: each text and each call in one piece."""
    fields = msgspec.json.decode(response)
    events = Events()
    begun = {
        **fields,
        "status": "in_progress",
        "completed_at": None,
        "output": [],
        "usage": None,
        "incomplete_details": None,
    }
    written = [
        events.event("response.created", {"response": begun}),
        events.event("response.in_progress", {"response": begun}),
        *(_item_events(events, item, place) for place, item in enumerate(fields["output"])),
        events.event(LAST.get(fields["status"], "response.failed"), {"response": msgspec.Raw(response)}),
    ]
    return b"".join(written)


def _item_events(events: Events, item: Mapping[str, Any], place: int) -> bytes:
    match item["type"]:
        case "message":
            return _spoken(events, Message(item["id"], place), item, item["content"][0]["text"])
        case "reasoning":
            text = "".join(part["text"] for part in item["content"])
            return _spoken(
                events, Reasoning(item["id"], place, hides="encrypted_content" in item), item, text
            )
        case "function_call":
            tool = Tool(FUNCTION, item["name"], item.get("namespace"))
            return _spoken(events, Call(item["id"], place, tool, item["call_id"]), item, item["arguments"])
        case _:
            fields = {"output_index": place, "item": item}
            return events.event("response.output_item.added", fields) + events.event(
                "response.output_item.done", fields
            )


def _spoken(events: Events, part: Message | Reasoning | Call, item: Mapping[str, Any], text: str) -> bytes:
    opened: Item = part
    begun = opened.opened(events)
    delta = part.delta(events, text) if text else b""
    return begun + delta + opened.closed(events, item.get("status") or "completed")
