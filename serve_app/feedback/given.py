"""What a client says of an answer, and what an administrator wants to see of it: read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from serve_app.errors import BadRequest, NotFound
from serve_app.feedback.captured import CaptureQuery
from serve_app.feedback.values import FeedbackQuery, Said
from serve_app.json_errors import no_json
from serve_app.settings.feedback import FeedbackSettings

MAX_ID_CHARS = 200
MAX_LABEL_CHARS = 64
MAX_PAGE = 500
SHAPE = '{"request_id": "<x-request-id>", "score": 0 to 1, "label", "text", "correction"}'

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARS)]
Label = Annotated[str, msgspec.Meta(max_length=MAX_LABEL_CHARS, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/feedback``."""

    request_id: Id
    score: Share | None = None
    label: Label | None = None
    text: str | None = None
    correction: str | None = None
    messages: list[dict[str, Any]] | None = None


def given_in(body: bytes, settings: FeedbackSettings) -> tuple[str, Said]:
    """The request's id, and what is said of it.

    Raises:
        BadRequest: it names the wrong field.
    """
    try:
        given = msgspec.json.decode(body, type=Given)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"Expected {SHAPE}: {no_json(error, body)}.", code="invalid_value") from error
    for field, most in (
        ("text", settings.max_text_chars),
        ("correction", settings.max_correction_chars),
    ):
        value = getattr(given, field)
        if value is not None and len(value) > most:
            raise BadRequest(
                f"`{field}` has {len(value)} characters, more than {most} (feedback.max_{field}_chars).",
                param=field,
                code="too_long",
            )
    _check_messages(given, settings.max_messages_bytes)
    if given.score is None and not (given.label or given.text or given.correction):
        raise BadRequest(f"Nothing is said of the answer: expected {SHAPE}.", param="score")
    said = Said(
        score=given.score,
        label=given.label or None,
        text=given.text or None,
        correction=given.correction or None,
        messages=given.messages or None,
    )
    return given.request_id, said


def _check_messages(given: Given, most: int) -> None:
    """Raises: BadRequest."""
    if not given.messages:
        return
    if not given.correction:
        raise BadRequest("`messages` are kept with a `correction` only.", param="messages")
    if not all(isinstance(message.get("role"), str) for message in given.messages):
        raise BadRequest("`messages`: each needs a `role`.", param="messages")
    size = len(msgspec.json.encode(given.messages))
    if size > most:
        raise BadRequest(
            f"`messages` have {size} bytes, more than {most} (feedback.max_messages_bytes).",
            param="messages",
            code="too_long",
        )


def unknown_request(request_id: str) -> NotFound:
    """The same for a request that never was, that is too old, and that is another tenant's."""
    return NotFound(
        f"There is no request {request_id[:80]!r} of yours that something may still be said of "
        "(feedback.request_ttl_s).",
        param="request_id",
        code="request_not_found",
    )


def query_in(given: Mapping[str, str]) -> FeedbackQuery:
    """Raises: BadRequest: an unknown parameter, or a wrong value; ``param`` names it."""
    known = ("tenant", "model", "request_id", "negative", "corrected", "after", "limit")
    unknown = sorted(given.keys() - set(known))
    if unknown:
        name = unknown[0][:40]
        raise BadRequest(f"Unknown query parameter {name!r}; known: {', '.join(known)}.", param=name)
    return FeedbackQuery(
        tenant=given.get("tenant") or None,
        model=given.get("model") or None,
        request_id=given.get("request_id") or None,
        negative=_flag(given, "negative"),
        corrected=_flag(given, "corrected"),
        after=None if "after" not in given else number_in(given, "after", 0, 2**62),
        limit=number_in(given, "limit", 100, MAX_PAGE),
    )


def capture_query_in(given: Mapping[str, str]) -> tuple[CaptureQuery, bool]:
    """The query, and whether texts are asked for. Raises: BadRequest."""
    known = ("tenant", "model", "content", "after", "limit")
    unknown = sorted(given.keys() - set(known))
    if unknown:
        name = unknown[0][:40]
        raise BadRequest(f"Unknown query parameter {name!r}; known: {', '.join(known)}.", param=name)
    query = CaptureQuery(
        tenant=given.get("tenant") or None,
        model=given.get("model") or None,
        after=number_in(given, "after", 0, 2**62),
        limit=number_in(given, "limit", 100, MAX_PAGE),
    )
    return query, bool(_flag(given, "content"))


def number_in(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A whole number of a query, from 1. Raises: BadRequest."""
    text = given.get(name)
    if text is None:
        return default
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else 0
    if not 1 <= value <= most:
        raise BadRequest(f"`{name}` is {text[:40]!r}; expected 1 to {most}.", param=name)
    return value


def _flag(given: Mapping[str, str], name: str) -> bool | None:
    text = given.get(name)
    if text in (None, ""):
        return None
    if text not in ("true", "false"):
        raise BadRequest(f"`{name}` is {str(text)[:40]!r}; expected `true` or `false`.", param=name)
    return text == "true"
