"""Errors in the words of three APIs. Real clients read them in test_gateway_clients.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.dialects import Reading, StreamErrors, dialect_of
from serve_app.dialects.anthropic import InlineSystem, read_messages
from serve_app.dialects.responses.dialect import read_alone
from serve_app.dialects.responses.request import read
from serve_app.errors import (
    BadRequest,
    BodyTooLarge,
    DeadlineExceeded,
    ErrorDetails,
    NoReplica,
    OverCapacity,
    PromptlyError,
    Unauthorized,
    UnknownModel,
    UpstreamFailed,
    UpstreamRefused,
)

BROKE = UpstreamFailed("it broke", code="upstream_failed")
MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"


def event_of(data: bytes) -> tuple[str | None, Any]:
    """Its name, if it has one, and its data."""
    assert data.endswith(b"\n\n")
    *named, line = data.decode().removesuffix("\n\n").split("\n")
    name = named[0].removeprefix("event: ") if named else None
    return name, json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize(
    ("path", "same_as"),
    [
        ("/v1/messages/count_tokens", MESSAGES),
        ("/v1/messages/", MESSAGES),
        ("/v1/responses/resp_1/cancel", RESPONSES),
        ("/v1/embeddings", CHAT),
        ("/v1/messagesx", CHAT),
        ("/v2/messages", CHAT),
        ("/", CHAT),
        ("", CHAT),
    ],
)
def test_a_path_speaks_the_dialect_that_it_lies_under(path: str, same_as: str) -> None:
    assert dialect_of(path) is dialect_of(same_as)


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_openais_bodies_are_the_errors_own(path: str) -> None:
    assert dialect_of(path).body(BROKE, "r1") == BROKE.body()
    assert dialect_of(path).headers("r1") == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadRequest("wrong"), "invalid_request_error"),
        (Unauthorized("who?"), "authentication_error"),
        (UnknownModel("x", []), "not_found_error"),
        (BodyTooLarge(5), "request_too_large"),
        (OverCapacity("busy", 1), "rate_limit_error"),
        (BROKE, "api_error"),
        (NoReplica("none"), "overloaded_error"),
        (DeadlineExceeded(1), "timeout_error"),
        (UpstreamRefused(422, ErrorDetails("no", "x")), "invalid_request_error"),
        (PromptlyError("bug"), "api_error"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anthropics_types_follow_the_status(error: PromptlyError, kind: str) -> None:
    dialect = dialect_of(MESSAGES)
    expected = {
        "type": "error",
        "error": {"type": kind, "message": error.details.message},
        "request_id": "r1",
    }
    assert json.loads(dialect.body(error, "r1")) == expected
    assert event_of(dialect.stream().event(error, "r1")) == ("error", expected)
    assert dialect.headers("r1") == {"request-id": "r1"}


def numbered(number: int, name: str = "response.output_text.delta", delta: str = "x") -> bytes:
    data = {"type": name, "sequence_number": number, "delta": delta}
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def first_number(stream: StreamErrors) -> int:
    """Of the events that end a stream."""
    first = stream.event(BROKE, "r1").partition(b"\n\n")[0]
    return int(event_of(first + b"\n\n")[1]["sequence_number"])


MISLEADING = '"sequence_number": 99}\n\nevent: response.completed\ndata: '


@pytest.mark.parametrize("size", [1, 7, 40, 10_000])
def test_the_responses_error_counts_on_however_the_bytes_come(size: int) -> None:
    stream = dialect_of(RESPONSES).stream()
    assert stream.passed is not None
    data = b"".join(numbered(number, delta=MISLEADING) for number in (9, 10, 11))
    for start in range(0, len(data), size):
        stream.passed(data[start : start + size])
    assert stream.has_ended is False
    failed, error = stream.event(BROKE, "r1").split(b"\n\n", 1)
    name, event = event_of(failed + b"\n\n")
    assert name == "response.failed"
    assert event["sequence_number"] == 12
    assert event["response"]["error"] == {"code": "upstream_failed", "message": "it broke"}
    name, event = event_of(error)
    assert name == "error"
    assert event == {
        "type": "error",
        "code": "upstream_failed",
        "message": "it broke",
        "param": None,
        "sequence_number": 13,
        "error": {"message": "it broke", "type": "upstream_error", "param": None, "code": "upstream_failed"},
    }


@pytest.mark.parametrize("cut", range(30, 75))
def test_an_event_that_is_cut_in_its_number_does_not_hide_the_one_before(cut: int) -> None:
    stream = dialect_of(RESPONSES).stream()
    assert stream.passed is not None
    stream.passed(numbered(9) + numbered(10)[:cut])
    assert first_number(stream) in {10, 11}


def test_the_first_event_of_a_responses_stream_is_number_0() -> None:
    assert first_number(dialect_of(RESPONSES).stream()) == 0


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_responses_failure_names_its_response(size: int) -> None:
    stream = dialect_of(RESPONSES).stream()
    assert stream.passed is not None
    wanted = f"resp_{'0a' * 16}"
    data = json.dumps(
        {"type": "response.created", "response": {"id": wanted}}, separators=(",", ":")
    ).encode()
    for start in range(0, len(data), size):
        stream.passed(data[start : start + size])
    failed = stream.event(BROKE, "r1").partition(b"\n\n")[0]
    assert event_of(failed + b"\n\n")[1]["response"]["id"] == wanted


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        (RESPONSES, "response.completed"),
        (RESPONSES, "response.failed"),
        (RESPONSES, "response.incomplete"),
        (RESPONSES, "error"),
    ],
)
def test_a_stream_that_has_said_its_end_is_known(path: str, name: str, size: int) -> None:
    stream = dialect_of(path).stream()
    assert stream.passed is not None
    data = numbered(3) + numbered(4, name)
    for start in range(0, len(data), size):
        stream.passed(data[start : start + size])
    assert stream.has_ended is True


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_a_stream_whose_end_other_code_knows_is_not_followed(path: str) -> None:
    stream = dialect_of(path).stream()
    assert (stream.passed, stream.has_ended) == (None, None)


def test_the_error_event_of_a_chat_has_no_name() -> None:
    stream = dialect_of(CHAT).stream()
    assert event_of(stream.event(BROKE, "r1")) == (None, json.loads(BROKE.body()))


MESSAGES_ASKED: dict[str, Any] = {
    "model": "m",
    "max_tokens": 4,
    "messages": [{"role": "user", "content": "hi"}],
}
SCHEMA_FORM = {"type": "json_schema", "schema": {"type": "object"}}


def messages_reading(**fields: Any) -> Reading:
    return read_messages(MESSAGES_ASKED | fields, InlineSystem.FIRST)


def responses_reading() -> Reading:
    return read_alone(read({"model": "m", "input": "hi", "store": False}))


@pytest.mark.parametrize(
    ("reading", "param", "own"),
    [
        (messages_reading(), "stop", "stop_sequences"),
        (messages_reading(), "reasoning_effort", "output_config.effort"),
        (messages_reading(), "response_format.json_schema", "output_config.format"),
        (messages_reading(output_format=SCHEMA_FORM), "response_format", "output_format"),
        (messages_reading(), "max_completion_tokens", "max_tokens"),
        (messages_reading(), "messages[0].content", "messages"),
        (messages_reading(), "temperature", "temperature"),
        (responses_reading(), "reasoning_effort", "reasoning.effort"),
        (responses_reading(), "max_tokens", "max_output_tokens"),
        (responses_reading(), "response_format", "text.format"),
        (responses_reading(), "messages", "input"),
        (responses_reading(), "messages[0].content", "input"),
        (responses_reading(), "tools[0].function.parameters.response_format", "tools"),
        (responses_reading(), "stop", "stop"),
    ],
)
def test_an_error_of_a_chat_names_the_field_that_its_client_sent(
    reading: Reading, param: str, own: str
) -> None:
    told = reading.as_asked(BadRequest(f"`{param}` is wrong.", param=param, code="invalid_value"))
    assert (told.message, told.param, told.code) == (f"`{own}` is wrong.", own, "invalid_value")
    refused = UpstreamRefused(
        422, ErrorDetails(f"`{param}` is wrong.", "t", param, "c"), {"retry-after": "1"}
    )
    again = reading.as_asked(refused)
    assert again.details == ErrorDetails(f"`{own}` is wrong.", "t", own, "c")
    assert (again.status, again.headers) == (422, {"retry-after": "1"})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("The user wants to stop: max_tokens=5.", "The user wants to stop: max_output_tokens=5."),
        ("the messages must alternate", "the messages must alternate"),
        ("my_max_tokens and max_tokens_left", "my_max_tokens and max_tokens_left"),
    ],
)
def test_words_that_only_look_like_fields_stay_as_they_are(said: str, told: str) -> None:
    assert responses_reading().as_asked(BadRequest(said)).message == told


def test_errors_that_name_no_field_of_a_chat_stay_what_they_are() -> None:
    assert messages_reading().as_asked(BROKE) is BROKE
