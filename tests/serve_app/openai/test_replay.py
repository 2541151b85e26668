"""A stored answer is replayed with the keys and the framing that the engine would have used."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from samples import (
    CHAT,
    CHAT_EVENTS,
    CHAT_JSON,
    COMPLETION_EVENTS,
    COMPLETIONS,
    STREAMED_ANSWERS,
    STREAMS,
    TEXTS,
    make_answer,
)

from serve_app.openai.answers import Answer, answer_from_json, answer_from_stream
from serve_app.openai.replay import as_json, as_stream, pieces
from serve_app.openai.requests import Endpoint
from serve_app.openai.usage import UsageFilter

CREATED = 1795238815


def shape(value: Any) -> Any:
    """A value with its scalars left out: the keys at every level."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None


def payload(event: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return value


def stream_of(answer: Answer, endpoint: Endpoint, *, with_usage: bool = True) -> list[bytes]:
    return list(as_stream(answer, endpoint, "r1", CREATED, with_usage=with_usage))


def chunks_of(answer: Answer, endpoint: Endpoint) -> list[dict[str, Any]]:
    return [payload(event) for event in stream_of(answer, endpoint)[:-1]]


# ---- an answer comes back ----


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_replayed_stream_is_read_as_the_answer(text: str, endpoint: Endpoint) -> None:
    answer = make_answer(text, system_fingerprint="vllm-0.29.0-7dcd8c51")
    assert answer_from_stream(endpoint, stream_of(answer, endpoint)) == answer


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_replayed_response_is_read_as_the_answer(text: str, endpoint: Endpoint) -> None:
    answer = make_answer(text, system_fingerprint="vllm-0.29.0-7dcd8c51")
    assert answer_from_json(endpoint, as_json(answer, endpoint, "r1", CREATED)) == answer


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("stop_reason", [None, "END", 128001])
@pytest.mark.parametrize("text", ["", "two words"])
def test_the_reason_to_stop_comes_back(text: str, stop_reason: str | int | None, endpoint: Endpoint) -> None:
    answer = make_answer(text, stop_reason=stop_reason)
    assert answer_from_stream(endpoint, stream_of(answer, endpoint)) == answer
    assert answer_from_json(endpoint, as_json(answer, endpoint, "r1", CREATED)) == answer


# ---- framing ----


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_every_event_is_one_line_and_a_blank_one_and_the_last_is_done(text: str, endpoint: Endpoint) -> None:
    events = stream_of(make_answer(text), endpoint)
    assert all(event.startswith(b"data: ") and event.endswith(b"\n\n") for event in events)
    assert all(event.count(b"\n") == 2 for event in events)
    assert [event == b"data: [DONE]\n\n" for event in events].index(True) == len(events) - 1


@pytest.mark.parametrize("endpoint", Endpoint)
def test_only_the_last_choice_has_a_reason_to_finish(endpoint: Endpoint) -> None:
    chunks = chunks_of(make_answer("one two three"), endpoint)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]


@pytest.mark.parametrize("endpoint", Endpoint)
def test_usage_is_sent_only_when_asked_for(endpoint: Endpoint) -> None:
    answer = make_answer("one two")
    bare = stream_of(answer, endpoint, with_usage=False)
    full = stream_of(answer, endpoint, with_usage=True)
    assert not any(b'"usage"' in event for event in bare)
    assert full[:-2] + full[-1:] == bare
    assert payload(full[-2])["usage"] == {"prompt_tokens": 5, "total_tokens": 8, "completion_tokens": 3}


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_the_filter_makes_of_a_stream_with_usage_the_one_without(text: str, endpoint: Endpoint) -> None:
    answer, usage_filter = make_answer(text), UsageFilter()
    passed = [usage_filter.feed(event) for event in stream_of(answer, endpoint, with_usage=True)]
    assert [event for event in passed if event] == stream_of(answer, endpoint, with_usage=False)


@pytest.mark.parametrize(
    ("endpoint", "request_id", "kind", "chunk_kind"),
    [
        (CHAT, "chatcmpl-r1", "chat.completion", "chat.completion.chunk"),
        (COMPLETIONS, "cmpl-r1", "text_completion", "text_completion"),
    ],
)
def test_every_part_says_what_it_is(endpoint: Endpoint, request_id: str, kind: str, chunk_kind: str) -> None:
    answer = make_answer("one two")
    response = json.loads(as_json(answer, endpoint, "r1", CREATED))
    head = ("id", "object", "created", "model")
    assert [response[name] for name in head] == [request_id, kind, CREATED, "m"]
    for chunk in chunks_of(answer, endpoint):
        assert [chunk[name] for name in head] == [request_id, chunk_kind, CREATED, "m"]


# ---- as vLLM does it ----


def test_a_live_chat_stream_is_replayed_byte_for_byte() -> None:
    """Its only word is one piece, as it was one token."""
    replayed = as_stream(STREAMED_ANSWERS[CHAT], CHAT, "91af5d6baa3a2645", CREATED, with_usage=True)
    assert tuple(replayed) == CHAT_EVENTS


@pytest.mark.parametrize("endpoint", Endpoint)
def test_the_keys_of_a_replayed_stream_are_in_the_order_of_a_live_one(endpoint: Endpoint) -> None:
    live = STREAMS[endpoint]
    replayed = stream_of(STREAMED_ANSWERS[endpoint], endpoint)
    for ours, theirs in ((replayed[0], live[0]), (replayed[-3], live[-3]), (replayed[-2], live[-2])):
        assert json.dumps(shape(payload(ours))) == json.dumps(shape(payload(theirs)))


def test_every_chunk_of_a_replayed_chat_has_the_keys_of_a_live_one() -> None:
    first, *words, last, usage = chunks_of(make_answer("one two three"), CHAT)
    live_first, live_word, live_last, live_usage = (payload(event) for event in CHAT_EVENTS[:-1])
    assert shape(first) == shape(live_first)
    assert [shape(word) for word in words] == [shape(live_word)] * 3
    assert shape(last) == shape(live_last)
    assert shape(usage) == shape(live_usage)


def test_every_chunk_of_a_replayed_text_completion_has_the_keys_of_a_live_one() -> None:
    *words, usage = chunks_of(make_answer("one two three"), COMPLETIONS)
    assert [shape(word) for word in words] == [shape(payload(COMPLETION_EVENTS[0]))] * 3
    assert shape(usage) == shape(payload(COMPLETION_EVENTS[-2]))


def test_a_replayed_chat_response_has_the_keys_of_a_live_one() -> None:
    replayed = json.loads(as_json(make_answer(), CHAT, "r1", CREATED))
    assert shape(replayed) == shape(json.loads(CHAT_JSON))


def test_a_replayed_chat_response_of_a_live_answer_is_the_live_response() -> None:
    live = json.loads(CHAT_JSON)
    answer = answer_from_json(CHAT, CHAT_JSON)
    assert answer is not None
    replayed = json.loads(as_json(answer, CHAT, live["id"].removeprefix("chatcmpl-"), live["created"]))
    assert {name: live[name] for name in replayed if name != "choices"} == {
        name: value for name, value in replayed.items() if name != "choices"
    }
    assert replayed["choices"][0]["message"] == live["choices"][0]["message"]


# ---- pieces ----


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_pieces_joined_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert "" not in pieces(text)


def test_pieces_of_random_text_joined_are_the_text() -> None:
    choose = random.Random(6)
    for _ in range(3000):
        text = "".join(choose.choices(" \n\t\r\u00a0\u2028\x1fab.é👍", k=choose.randint(0, 12)))
        cut = pieces(text)
        assert "".join(cut) == text
        assert all(len(piece.split()) == 1 for piece in cut) or not text.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("one", ["one"]),
        ("one two", ["one", " two"]),
        ("  one\n\ntwo  ", ["  one", "\n\ntwo  "]),
        ("one\n", ["one\n"]),
        (" \n ", [" \n "]),
    ],
)
def test_a_piece_is_a_word_with_the_space_before_it(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_a_long_text_is_cut_in_time_that_grows_with_its_length() -> None:
    """Quadratic cutting would take minutes here."""
    for text in ("x" * 200_000, " " * 200_000, "a " * 100_000, "a" + " " * 200_000 + "b"):
        assert sum(map(len, pieces(text))) == len(text)
