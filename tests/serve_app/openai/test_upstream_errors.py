"""An engine's error reaches the client in OpenAI's shape, whatever shape it came in."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from serve_app.openai.sse import event
from serve_app.openai.upstream_errors import MAX_MESSAGE_CHARS, normalise_error, stream_error

SHAPELESS: dict[str, bytes] = {
    "nothing": b"",
    "HTML": b"<html>502 Bad Gateway</html>",
    "invalid UTF-8": b'{"error":"\xff"}',
    "half": b'{"error":',
    "null": b"null",
    "a list": b"[]",
    "a text": b'"no"',
    "an empty object": b"{}",
    "an empty error": b'{"error":{}}',
    "a null error": b'{"error":null}',
    "an empty message": b'{"error":{"message":""}}',
    "details as a list": b'{"detail":[{"loc":["body","messages"],"msg":"wrong"}]}',
    "deeply nested": b"[" * 100_000,
}


def normalised(status: int, body: bytes) -> dict[str, Any]:
    error: dict[str, Any] = msgspec.to_builtins(normalise_error(status, body))
    assert error.keys() == {"message", "type", "param", "code"}
    return error


def vllm_error(**fields: Any) -> bytes:
    error = {"message": "wrong", "type": "BadRequestError", "param": None, "code": 400}
    return json.dumps({"error": error | fields}).encode()


def test_vllms_error_keeps_its_message_and_param() -> None:
    assert normalised(400, vllm_error(param="temperature", code=400)) == {
        "message": "wrong",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "upstream_refused",
    }


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "context_length_exceeded", "context_length_exceeded"),
        (400, 400, "upstream_refused"),
        (404, None, "upstream_refused"),
        (400, "", "upstream_refused"),
        (400, {"a": 1}, "upstream_refused"),
        (500, 500, "upstream_failed"),
        (503, True, "upstream_failed"),
    ],
)
def test_a_code_is_a_name_and_never_a_number(status: int, code: Any, expected: str) -> None:
    assert normalised(status, vllm_error(code=code))["code"] == expected


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        ("body.messages", "messages"),
        ("body.messages.0.content", "messages.0.content"),
        ("messages", "messages"),
        ("bodyguard", "bodyguard"),
        ("stop.body.x", "stop.body.x"),
        (None, None),
        (5, None),
        (["body", "messages"], None),
    ],
)
def test_a_field_is_named_as_clients_know_it(param: Any, expected: str | None) -> None:
    assert normalised(400, vllm_error(param=param))["param"] == expected


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (422, "upstream_error"),
        (500, "upstream_error"),
        (503, "upstream_error"),
    ],
)
def test_the_type_is_openais_for_the_status(status: int, kind: str) -> None:
    assert normalised(status, vllm_error())["type"] == kind


@pytest.mark.parametrize("body", [b'{"detail":"No such file"}', b'{"message":"No such file"}'])
def test_a_message_in_another_place_is_found(body: bytes) -> None:
    error = normalised(404, body)
    assert (error["message"], error["code"]) == ("No such file", "upstream_refused")


def test_a_path_that_the_server_lacks_is_said_to_be_that() -> None:
    error = normalised(404, b'{"detail":"Not Found"}')
    assert (error["message"], error["code"]) == (
        "The server of this model does not have this path: it may be one of another kind of model.",
        "upstream_refused",
    )


@pytest.mark.parametrize("body", SHAPELESS.values(), ids=SHAPELESS)
def test_a_body_without_a_message_still_says_what_happened(body: bytes) -> None:
    assert normalised(500, body) == {
        "message": "The engine answered 500.",
        "type": "upstream_error",
        "param": None,
        "code": "upstream_failed",
    }


def test_a_long_message_is_cut() -> None:
    long = "é" * 100_000
    assert normalised(400, vllm_error(message=long))["message"] == "é" * MAX_MESSAGE_CHARS
    _, error = stream_error(event(vllm_error(message=long)))
    assert error.message == "é" * MAX_MESSAGE_CHARS


def test_a_stream_that_begins_with_the_engines_error_is_a_502_with_its_message() -> None:
    status, error = stream_error(b": keep-alive\n\n" + event(vllm_error(message="out of memory", code=500)))
    assert status == 502
    assert error.message == "out of memory"


@pytest.mark.parametrize("code", [400, 404, 422, 499])
def test_a_stream_that_begins_with_the_clients_error_keeps_its_status(code: int) -> None:
    status, error = stream_error(event(vllm_error(message="bad grammar", param="body.structured", code=code)))
    assert status == code
    assert error.param == "structured"


@pytest.mark.parametrize("data", [b"", *map(event, SHAPELESS.values())])
def test_a_stream_that_begins_with_anything_else_is_a_502(data: bytes) -> None:
    status, error = stream_error(data)
    assert status == 502
    assert error.message
