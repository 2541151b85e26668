"""A list of models gives a context length where it has one, and is never trusted to be well formed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from serve_app.openai.models import context_tokens, model_card, model_list

VLLM = (
    b'{"object":"list","data":[{"id":"small","object":"model","created":1795238815,"owned_by":"vllm",'
    b'"root":"owner/small","parent":null,"max_model_len":4096,"permission":[{"id":"modelperm-1"}]},'
    b'{"id":"adapter","object":"model","created":1795238815,"owned_by":"vllm","root":"/adapter",'
    b'"parent":"small","max_model_len":null,"permission":[]}]}'
)


def listed(*cards: Any) -> bytes:
    return json.dumps({"object": "list", "data": cards}).encode()


def test_vllms_list_says_how_long_a_context_is() -> None:
    assert context_tokens(VLLM, "small") == 4096


def test_the_model_of_that_name_is_meant() -> None:
    cards = {"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 2}
    assert [context_tokens(listed(*cards), name) for name in ("a", "b", "c")] == [1, 2, None]


@pytest.mark.parametrize(
    "body",
    [
        VLLM.replace(b"small", b"other"),
        listed({"id": "small", "object": "model", "owned_by": "vendor"}),
        listed({"id": "small", "max_model_len": None}),
        listed(),
    ],
)
def test_a_list_that_does_not_say_is_no_answer(body: bytes) -> None:
    assert context_tokens(body, "small") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"null",
        b"[]",
        b"{}",
        b'{"data":null}',
        b'{"data":{}}',
        b'{"data":[1]}',
        b'{"data":[{}]}',
        b'{"data":[{"id":7}]}',
        VLLM[:-1],
        VLLM + b"}",
        b"\xff",
        b'{"data":[{"id":"\xff"}]}',
        b'{"data":[{"id":"\\ud800"}]}',
        listed({"id": "small", "max_model_len": "4096"}),
        listed({"id": "small", "max_model_len": 4096.5}),
        listed({"id": "small", "max_model_len": True}),
    ],
)
def test_anything_but_a_list_of_models_is_no_answer(body: bytes) -> None:
    assert context_tokens(body, "small") is None


@pytest.mark.parametrize(
    ("about", "more"),
    [
        ({}, {}),
        ({"root": "real"}, {"root": "real"}),
        ({"parent": "base", "max_model_len": 512}, {"parent": "base", "max_model_len": 512}),
    ],
)
def test_a_card_says_what_is_known_and_nothing_else(about: dict[str, Any], more: dict[str, Any]) -> None:
    card = msgspec.to_builtins(model_card("m", 7, **about))
    openai = {"id": "m", "object": "model", "created": 7, "owned_by": "promptly"}
    anthropic = {"type": "model", "display_name": "m", "created_at": "1970-01-01T00:00:07Z"}
    assert card == openai | anthropic | more


def test_a_gateway_can_read_the_list_of_another() -> None:
    cards = [model_card("m", 7, max_model_len=4096), model_card("n", 7)]
    body = msgspec.json.encode(model_list(cards))
    assert [context_tokens(body, name) for name in ("m", "n")] == [4096, None]
