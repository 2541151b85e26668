"""What is wrong with a request is said by the name of its field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from samples import CHAT, COMPLETIONS, body_of, chat_request, completion_request, user

from serve_app.errors import BadRequest
from serve_app.openai.requests import (
    ChatRequest,
    CompletionRequest,
    Endpoint,
    ParsedRequest,
    embedding_request,
    parse_generation,
    parse_json,
    required_string,
)

NO_JSON: dict[str, bytes] = {
    "nothing": b"",
    "a space": b" ",
    "text": b"nope",
    "half": b'{"model":"m"',
    "more": b'{"model":"m"} x',
    "two": b"{}{}",
    "single quotes": b"{'model':'m'}",
    "a trailing comma": b'{"model":"m",}',
    "NaN": b'{"model":"m","temperature":NaN}',
    "Infinity": b'{"model":"m","temperature":Infinity}',
    "a float out of range": b'{"model":"m","temperature":1e999}',
    "an integer out of range": b'{"model":"m","seed":' + b"9" * 5000 + b"}",
    "a raw newline in a text": b'{"model":"a\nb"}',
    "invalid UTF-8 outside of a text": b'{\xff"model":"m"}',
    "invalid UTF-8 in a text": b'{"model":"\xff"}',
    "invalid UTF-8 in a name": b'{"\xff":"m"}',
    "invalid UTF-8 cut short": b'{"model":"\xe6\x9d"}',
    "UTF-8 of a surrogate": b'{"model":"\xed\xa0\x80"}',
    "a lone high surrogate": rb'{"model":"\ud800"}',
    "a lone high surrogate in front of a text": rb'{"model":"\ud800 and more text"}',
    "a lone low surrogate": rb'{"model":"\udc00 and more text"}',
    "two high surrogates": rb'{"model":"\ud800\ud800"}',
    "UTF-16": '{"model":"m"}'.encode("utf-16"),
    "deeply nested lists": b'{"model":' + b"[" * 200_000,
    "deeply nested lists that end": b'{"model":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deeply nested objects": b'{"a":' * 200_000,
}

EMBEDDING: dict[str, Any] = {"model": "e", "input": "hi"}


def refused(endpoint: Endpoint, body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse_generation(endpoint, body)
    return caught.value


def refused_field(endpoint: Endpoint, **fields: Any) -> BadRequest:
    known: dict[str, Any] = {"model": "m"}
    known |= {"messages": [user("hi")]} if endpoint is CHAT else {"prompt": "hi"}
    return refused(endpoint, body_of(known | fields))


def refused_embedding(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        embedding_request(parse_json(body))
    return caught.value


# ---- JSON ----


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    for error in (refused(CHAT, body), refused(COMPLETIONS, body), refused_embedding(body)):
        assert error.code in ("invalid_json", "nested_too_deeply")
        assert error.message.startswith("The request body ")
        assert len(error.message) < 300


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"model"', b"true", b'[{"model":"m"}]'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    error = refused(CHAT, body)
    assert (error.message, error.code) == ("The request body must be a JSON object.", "invalid_json")


def test_a_text_with_escapes_and_pairs_of_surrogates_is_read() -> None:
    assert parse_json(rb'{"a":"\ud83d\udc4d \u00e9 \u0000"}') == {"a": "👍 é \0"}


def test_a_name_given_twice_has_its_last_value_as_at_the_engine() -> None:
    assert parse_json(b'{"n":1,"n":2}') == json.loads('{"n":1,"n":2}') == {"n": 2}


# ---- both generating endpoints ----


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("model", None, "model"),
        ("model", 5, "model"),
        ("model", ["m"], "model"),
        ("stream", "maybe", "stream"),
        ("stream", 2, "stream"),
        ("stream_options", True, "stream_options"),
        ("stream_options", [], "stream_options"),
        ("stream_options", {"include_usage": "maybe"}, "stream_options.include_usage"),
        ("n", 0, "n"),
        ("n", -1, "n"),
        ("n", 1.5, "n"),
        ("n", False, "n"),
        ("n", "one", "n"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", -5, "max_tokens"),
        ("max_tokens", 1e30, "max_tokens"),
        ("max_tokens", "8.5", "max_tokens"),
        ("max_completion_tokens", 0, "max_completion_tokens"),
        ("max_completion_tokens", [], "max_completion_tokens"),
        ("temperature", -0.1, "temperature"),
        ("temperature", "hot", "temperature"),
        ("temperature", "inf", "temperature"),
        ("temperature", 10**400, "temperature"),
        ("top_p", 0, "top_p"),
        ("top_p", 1.01, "top_p"),
        ("top_p", -1, "top_p"),
        ("top_p", 10**30, "top_p"),
        ("top_p", {}, "top_p"),
        ("stop", 5, "stop"),
        ("stop", {}, "stop"),
        ("stop", ["a", 5], "stop[1]"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    endpoint: Endpoint, name: str, value: Any, param: str
) -> None:
    error = refused_field(endpoint, **{name: value})
    assert (error.param, error.code) == (param, "invalid_value")
    assert error.message.startswith(f"Invalid value for `{param}`: ")


@pytest.mark.parametrize("endpoint", Endpoint)
def test_null_is_as_good_as_absent(endpoint: Endpoint) -> None:
    names = (
        "stream",
        "stream_options",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stop",
    )
    request = (chat_request if endpoint is CHAT else completion_request)(**dict.fromkeys(names))
    assert all(getattr(request.generation, name) is None for name in names)
    assert not request.generation.wants_stream
    assert not request.generation.wants_usage


@pytest.mark.parametrize("endpoint", Endpoint)
def test_fields_that_only_the_engine_knows_are_left_to_it(endpoint: Endpoint) -> None:
    fields = {"top_k": "many", "logit_bias": [1], "a_field_of_tomorrow": {"a": [None]}, "seed": 10**30}
    request = (chat_request if endpoint is CHAT else completion_request)(**fields)
    assert {name: request.fields[name] for name in fields} == fields


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_request_keeps_its_body_as_sent(endpoint: Endpoint) -> None:
    both = b'"prompt" : "a", "messages":[{"role":"user","content":"\\u00e9"}]'
    body = b" {" + both + b',\n"model":"m", "temperature":1.0}\n'
    request = parse_generation(endpoint, body)
    assert request.body == body
    assert (request.endpoint, request.model, request.generation.temperature) == (endpoint, "m", 1.0)


@pytest.mark.parametrize(
    ("fields", "stream", "usage"),
    [
        ({}, False, False),
        ({"stream": True}, True, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True, True),
        ({"stream": True, "stream_options": {"include_usage": False}}, True, False),
        ({"stream": True, "stream_options": {"include_usage": None}}, True, False),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, True, False),
        ({"stream": False, "stream_options": {"include_usage": True}}, False, True),
    ],
)
def test_stream_and_usage_are_wanted_only_when_asked_for(fields: Any, stream: bool, usage: bool) -> None:
    generation = chat_request(**fields).generation
    assert (generation.wants_stream, generation.wants_usage) == (stream, usage)


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_missing_model_is_named(endpoint: Endpoint) -> None:
    error = refused(endpoint, b'{"messages":[{"role":"user"}],"prompt":"hi"}')
    assert (error.message, error.param, error.code) == (
        "Missing required field `model`.",
        "model",
        "missing_field",
    )


# ---- chat ----


def test_missing_messages_are_named() -> None:
    error = refused(CHAT, b'{"model":"m"}')
    assert (error.param, error.code) == ("messages", "missing_field")


def test_a_missing_field_inside_is_named_with_its_path() -> None:
    error = refused_field(CHAT, messages=[user("a"), {"content": "b"}])
    assert error.message == "Missing required field `messages[1].role`."
    assert (error.param, error.code) == ("messages[1].role", "missing_field")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ({}, "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([None], "messages[0]"),
        ([user("a"), 5], "messages[1]"),
        ([{"role": None}], "messages[0].role"),
        ([{"role": ""}], "messages[0].role"),
        ([{"role": 5}], "messages[0].role"),
        ([user(5)], "messages[0].content"),
        ([user({"type": "text"})], "messages[0].content"),
        ([user(["a"])], "messages[0].content[0]"),
        ([user("a"), user([{"type": "text"}, None])], "messages[1].content[1]"),
    ],
    ids=str,
)
def test_wrong_messages_are_refused_by_their_path(messages: Any, param: str) -> None:
    error = refused_field(CHAT, messages=messages)
    assert (error.param, error.code) == (param, "invalid_value")
    assert f"`{param}`" in error.message


def test_messages_of_every_kind_are_accepted() -> None:
    messages = [
        {"role": "system", "content": "s"},
        user([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]),
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "content": None},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
        {"role": "a_role_of_tomorrow", "content": ""},
    ]
    request = chat_request(messages=messages)
    assert isinstance(request.generation, ChatRequest)
    assert [message.role for message in request.generation.messages] == [each["role"] for each in messages]
    assert request.fields["messages"] == messages


# ---- text completions ----


@pytest.mark.parametrize("prompt", ["", "hi", ["a", "b"], [1, 2], [[1, 2], [3]], []], ids=str)
def test_a_prompt_is_a_text_or_tokens_or_several_of_one_kind(prompt: Any) -> None:
    request = completion_request(prompt)
    assert isinstance(request.generation, CompletionRequest)
    assert request.generation.prompt == prompt


@pytest.mark.parametrize("prompt", [5, 0.5, True, {}, {"text": "a"}], ids=str)
def test_a_prompt_of_another_kind_is_refused(prompt: Any) -> None:
    error = refused_field(COMPLETIONS, prompt=prompt)
    assert (error.param, error.code) == ("prompt", "invalid_value")


@pytest.mark.parametrize("fields", [{}, {"prompt": None}, {"prompt": None, "prompt_embeds": None}], ids=str)
def test_a_missing_prompt_is_named(fields: dict[str, Any]) -> None:
    error = refused(COMPLETIONS, body_of({"model": "m", **fields}))
    assert (error.message, error.param, error.code) == (
        "Missing required field `prompt`.",
        "prompt",
        "missing_field",
    )


def test_embeddings_take_the_place_of_a_prompt() -> None:
    request: ParsedRequest = completion_request(None, prompt_embeds="AAAA")
    assert request.fields["prompt_embeds"] == "AAAA"


# ---- embeddings ----


@pytest.mark.parametrize(
    ("given", "texts"), [("hi", ["hi"]), (["a", "b"], ["a", "b"]), (" ", [" "]), ("東京", ["東京"])]
)
def test_the_input_of_an_embedding_is_one_text_or_several(given: Any, texts: list[str]) -> None:
    assert embedding_request(parse_json(body_of(EMBEDDING | {"input": given}))).texts == texts


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 5}, "model"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": {}}, "input"),
        ({"input": [{}]}, "input[0]"),
        ({"input": ["a", [1]]}, "input[1]"),
        ({"encoding_format": 5}, "encoding_format"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"encoding_format": ""}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": "-8"}, "dimensions"),
        ({"dimensions": 0.5}, "dimensions"),
    ],
    ids=str,
)
def test_a_wrong_field_of_an_embedding_is_named(fields: dict[str, Any], param: str) -> None:
    error = refused_embedding(body_of(EMBEDDING | fields))
    assert error.param == param
    assert f"`{param}`" in error.message


@pytest.mark.parametrize("name", ["model", "input"])
def test_a_missing_field_of_an_embedding_is_named(name: str) -> None:
    error = refused_embedding(body_of({key: value for key, value in EMBEDDING.items() if key != name}))
    assert (error.message, error.param) == (f"Missing required field `{name}`.", name)


@pytest.mark.parametrize("encoding_format", [None, "float", "base64"])
def test_openais_encoding_formats_are_accepted(encoding_format: str | None) -> None:
    body = body_of(EMBEDDING | {"encoding_format": encoding_format, "dimensions": 8, "user": "x"})
    request = embedding_request(parse_json(body))
    assert (request.encoding_format, request.dimensions) == (encoding_format, 8)


# ---- one field ----


@pytest.mark.parametrize(
    "fields", [{}, {"model": None}, {"model": ""}, {"model": 5}, {"model": ["m"]}], ids=str
)
def test_a_required_string_that_is_missing_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        required_string(fields, "model")
    assert (caught.value.param, caught.value.code) == ("model", "missing_field")


def test_a_required_string_is_returned() -> None:
    assert required_string({"model": "m"}, "model") == "m"


@pytest.mark.parametrize("name", ["MODEL", "Max_Tokens", "meſsages", "max_to\u212aens", "N"])
def test_a_field_that_is_a_known_one_but_for_case_is_refused(name: str) -> None:
    body = json.dumps({"model": "m", "messages": [], name: 1}, ensure_ascii=False).encode()
    with pytest.raises(BadRequest) as caught:
        parse_json(body)
    assert (caught.value.param, caught.value.code) == (name, "unknown_field")


def test_other_unknown_fields_are_the_members_matter() -> None:
    assert parse_json(b'{"model":"m","Logit":1,"modelX":2}') == {"model": "m", "Logit": 1, "modelX": 2}
