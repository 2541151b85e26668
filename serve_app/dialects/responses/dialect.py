"""OpenAI's Responses API: the dialect, and a request together with what it refers to."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from serve_app.dialects.base import Reading
from serve_app.dialects.openai import OpenAIDialect
from serve_app.dialects.responses.ids import ItemIds
from serve_app.dialects.responses.items import with_references
from serve_app.dialects.responses.request import ENCRYPTED_REASONING, NAMES, TypedRequest, chat_fields, echo
from serve_app.dialects.responses.stream_errors import ResponsesStream, described
from serve_app.dialects.responses.writer import ResponsesWriter
from serve_app.errors import BadRequest, PromptlyError


class ResponsesDialect(OpenAIDialect):
    """Error bodies as in OpenAI's other APIs, streams with named and numbered events."""

    def body(self, error: PromptlyError, request_id: str) -> bytes:
        return msgspec.json.encode({"error": described(error)})

    def stream(self) -> ResponsesStream:  # type: ignore[override]
        return ResponsesStream()


def read_alone(asked: TypedRequest, clock: Callable[[], float] | None = None) -> Reading:
    """Where nothing is stored. ``clock``: in Unix seconds.

    Raises:
        BadRequest: the request needs what is stored, or one of its items is wrong.
    """
    _refuse_state(asked)
    fields = chat_fields(asked, (), with_references(asked.items, {}))

    def writer(unique: str, created: int) -> ResponsesWriter:
        return writer_of(asked, ItemIds(unique), created, stored=False, clock=clock)

    return Reading(fields, writer, names=NAMES)


def _refuse_state(asked: TypedRequest) -> None:
    """Raises: BadRequest: the request needs what is stored, and nothing is."""
    request = asked.request
    needs = {
        "previous_response_id": request.previous_response_id is not None,
        "conversation": request.conversation is not None,
        "background": bool(request.background),
    }
    for name, is_needed in needs.items():
        if is_needed:
            raise BadRequest(
                f"`{name}`: responses are not stored here (responses.enabled).",
                param=name,
                code="unsupported_parameter",
            )


def writer_of(
    asked: TypedRequest, ids: ItemIds, created: int, *, stored: bool, clock: Callable[[], float] | None = None
) -> ResponsesWriter:
    """``clock``: in Unix seconds."""
    return ResponsesWriter(
        ids,
        asked.tools,
        echo(asked, ids.response, stored=stored),
        created,
        model=asked.request.model,
        clock=clock,
        hides_reasoning=ENCRYPTED_REASONING in (asked.request.include or ()),
    )
