"""A body that cannot be read is described in words that a client knows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serve_app.errors import BadRequest
from serve_app.json_errors import in_json_words, no_json
from serve_app.openai.requests import EmbeddingRequest, convert, parse_json


def refused(body: bytes) -> str:
    with pytest.raises(BadRequest) as said:
        parse_json(body)
    assert said.value.code == "invalid_json"
    return said.value.message


@pytest.mark.parametrize(
    "body",
    [
        rb'{"a":"\ud800"}',
        b'{"a":"\\ud800"}  \n',
        rb'{"a":"\uDBFFabc"}',
        rb'{"a":"\\\ud800"}',
        rb'{"a":"\ud800abcdefgh"}',
        rb'{"a":"\udc00"}',
        rb'{"a":"\ud800\u0041"}',
    ],
)
def test_a_lone_surrogate_is_called_one(body: bytes) -> None:
    assert "lone surrogate" in refused(body)
    assert "truncated" not in refused(body)


@pytest.mark.parametrize(
    "body", [b'{"a":"', b'{"a":', rb'{"a":"\ud83d', rb'{"a":"\ud83d\ude', rb'{"a":"\\ud800"']
)
def test_a_body_without_its_end_is_still_called_truncated(body: bytes) -> None:
    assert refused(body) == "The request body is not valid JSON: Input data was truncated."


def test_bytes_that_are_no_text_are_called_so() -> None:
    assert refused(b'{"a":"\xed\xa0\x80"}') == "The request body is not valid JSON: it is not in UTF-8."


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"dimensions": "x"}, "Invalid value for `dimensions`: Expected `integer | null`, got `string`."),
        ({"dimensions": 1.5}, "Invalid value for `dimensions`: Expected `integer | null`, got `number`."),
        ({"input": {}}, "Invalid value for `input`: Expected `string | array`, got `object`."),
        ({"input": None}, "Invalid value for `input`: Expected `string | array`, got `null`."),
        ({"input": True}, "Invalid value for `input`: Expected `string | array`, got `boolean`."),
    ],
)
def test_types_have_jsons_names(value: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest) as error:
        convert({"model": "m", "input": "a", **value}, EmbeddingRequest)
    assert error.value.message == said


def test_only_types_are_renamed() -> None:
    unknown = "Object contains unknown field `str`"
    assert in_json_words(unknown) == unknown
    assert no_json(msgspec.ValidationError(unknown), b"") == unknown
    assert in_json_words("Expected `int` >= 1") == "Expected `integer` >= 1"
