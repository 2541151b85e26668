"""What a client says before its WebSocket is accepted: the model in the query, the key in a subprotocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from serve_app.errors import BadRequest

SUBPROTOCOL = "realtime"
KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""OpenAI's way for browsers, which cannot set headers. The page that opens the WebSocket must know the key,
so another page gains nothing by it."""

MAX_QUERY_FIELDS = 16


def query_of(raw: bytes) -> dict[str, str]:
    """The first value of each field. Raises: BadRequest."""
    try:
        fields = parse_qs(raw.decode("ascii"), max_num_fields=MAX_QUERY_FIELDS, errors="strict")
    except ValueError:
        raise BadRequest("The query cannot be read.", param="query", code="invalid_query") from None
    return {name: values[0] for name, values in fields.items()}


def model_of(query: Mapping[str, str]) -> str | None:
    """The model that the query names, if it does. Raises: BadRequest."""
    if "call_id" in query:
        raise BadRequest("There are no calls to join here.", param="call_id", code="invalid_value")
    if query.get("intent", "transcription") != "transcription":
        raise BadRequest("`intent`: expected `transcription`.", param="intent", code="invalid_value")
    return query.get("model")


def with_key(headers: Mapping[str, str], subprotocols: Sequence[str]) -> dict[str, str]:
    """The headers with the key that a subprotocol holds, if they have none."""
    if "authorization" in headers or "x-api-key" in headers:
        return dict(headers)
    keys = (each.removeprefix(KEY_SUBPROTOCOL) for each in subprotocols if each.startswith(KEY_SUBPROTOCOL))
    key = next(keys, None)
    return dict(headers) if key is None else {**headers, "authorization": f"Bearer {key}"}


def chosen_subprotocol(subprotocols: Sequence[str]) -> str | None:
    """Never the one that holds a key."""
    return SUBPROTOCOL if SUBPROTOCOL in subprotocols else None
