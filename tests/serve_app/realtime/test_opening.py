"""The query and the subprotocols that a WebSocket begins with."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.realtime.opening import chosen_subprotocol, model_of, query_of, with_key

OFFERED = ["realtime", "openai-insecure-api-key.pk-1-secret", "openai-beta.realtime-v1"]


def test_the_query_names_the_model() -> None:
    assert model_of(query_of(b"model=a%2Fb&intent=transcription")) == "a/b"
    assert model_of(query_of(b"")) is None


@pytest.mark.parametrize("query", [b"call_id=1", b"intent=conversation", b"\xff", b"a=%ff", b"a=1&" * 20])
def test_a_query_that_asks_for_something_else_or_cannot_be_read_is_refused(query: bytes) -> None:
    with pytest.raises(BadRequest):
        model_of(query_of(query))


def test_a_browsers_key_counts_where_there_is_no_header() -> None:
    assert with_key({}, OFFERED) == {"authorization": "Bearer pk-1-secret"}
    given = {"authorization": "Bearer other"}
    assert with_key(given, OFFERED) == given
    assert with_key({"x-api-key": "other"}, OFFERED) == {"x-api-key": "other"}
    assert with_key({}, ["realtime"]) == {}


def test_a_key_is_never_said_back() -> None:
    assert chosen_subprotocol(OFFERED) == "realtime"
    assert chosen_subprotocol(OFFERED[1:]) is None
