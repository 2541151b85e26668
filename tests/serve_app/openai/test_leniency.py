"""What vLLM takes is taken; tests/deployments/test_vllm_leniency.py asks vLLM itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.cache.keys import cache_key
from serve_app.errors import BadRequest
from serve_app.openai.leniency import plainly
from serve_app.openai.requests import Endpoint, ParsedRequest, parse_generation

SAME_INTEGERS = [5.0, "5", "5.0", " 5 ", "+5", "05", 5]


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def parsed(**fields: Any) -> ParsedRequest:
    return parse_generation(Endpoint.CHAT, chat(**fields))


@pytest.mark.parametrize("value", SAME_INTEGERS, ids=repr)
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_number_of_another_type_is_the_same_request(name: str, value: Any) -> None:
    request, plain = parsed(**{name: value}), parsed(**{name: 5})
    assert request.fields == plain.fields
    assert type(request.fields[name]) is int
    assert getattr(request.generation, name) == 5
    assert json.loads(request.body) == json.loads(plain.body)
    assert cache_key(request, "t", "f") == cache_key(plain, "t", "f")


@pytest.mark.parametrize("value", ["true", "Yes", "on", "1", "T", 1, 1.0])
def test_a_truth_of_another_type_is_a_stream(value: Any) -> None:
    request = parsed(stream=value, stream_options={"include_usage": value})
    assert (request.generation.wants_stream, request.generation.wants_usage) == (True, True)
    assert request.fields["stream"] is True
    assert request.fields["stream_options"] == {"include_usage": True}


def test_n_as_a_text_is_one_answer() -> None:
    assert cache_key(parsed(n="1"), "t", "f") == cache_key(parsed(n=1), "t", "f")
    assert cache_key(parsed(n="2"), "t", "f") is None


def test_what_is_in_its_own_type_is_not_copied() -> None:
    fields = {
        "max_tokens": 5,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": False},
        "x": 1,
    }
    assert plainly(fields) is fields
    body = chat(max_tokens=5, temperature=0.5, stream=False, top_p=None)
    assert parse_generation(Endpoint.CHAT, body).body is body


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", "many"),
        ("max_tokens", 5.5),
        ("max_tokens", "9" * 50),
        ("stream", "maybe"),
        ("stream", 2),
        ("temperature", "nan"),
        ("temperature", "hot"),
        ("top_p", []),
        ("n", "0"),
        ("n", {}),
    ],
)
def test_what_stands_for_nothing_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        parsed(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize("size", [1_000_000])
def test_a_long_text_in_the_place_of_a_number_costs_nothing(size: int) -> None:
    long = "9" * size
    assert plainly({"max_tokens": long, "temperature": long}) == {"max_tokens": long, "temperature": long}
