"""Streams of targets, also such as no target should send."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.evaluation.case import Case
from serve_app.evaluation.schedule import turns
from serve_app.evaluation.stream import AnswerStream, whole_answer
from serve_app.evaluation.target import Target, TargetError


def event(delta: dict[str, Any], **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, **more}]}).encode() + b"\n\n"


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}\n\n'
DONE = b"data: [DONE]\n\n"


def test_text_tokens_and_times_are_taken_from_a_stream() -> None:
    stream = AnswerStream()
    stream.feed(event({"role": "assistant", "content": ""}), 0.1)
    stream.feed(event({"content": "Hal"}), 0.2)
    stream.feed(event({"content": "lo"}, finish_reason="stop") + USAGE + DONE, 0.5)
    answer = stream.answer(0.6)
    assert (answer.text, answer.finish_reason, answer.error) == ("Hallo", "stop", None)
    assert (answer.prompt_tokens, answer.output_tokens) == (7, 5)
    assert (answer.ttft_s, answer.e2e_s) == (0.2, 0.6)
    assert answer.itl_s == pytest.approx((0.3,))


def test_pieces_of_tool_calls_become_whole() -> None:
    stream = AnswerStream()
    for call in (
        {"index": 0, "id": "a", "function": {"name": "add", "arguments": '{"x"'}},
        {"index": 1, "id": "b", "function": {"name": "stop", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    ):
        stream.feed(event({"tool_calls": [call]}), 1.0)
    stream.feed(DONE, 1.0)
    calls = stream.answer(1.0).tool_calls
    assert [(call["id"], call["function"]) for call in calls] == [
        ("a", {"name": "add", "arguments": '{"x": 1}'}),
        ("b", {"name": "stop", "arguments": "{}"}),
    ]


@given(st.lists(st.integers(1, 400)))
def test_how_a_stream_is_cut_does_not_matter(sizes: list[int]) -> None:
    body = event({"content": "Grüße "}) + event({"content": "🌊"}) + USAGE + DONE
    stream, start = AnswerStream(), 0
    for size in [*sizes, len(body)]:
        stream.feed(body[start : start + size], 1.0)
        start += size
    answer = stream.answer(2.0)
    assert (answer.text, answer.error, answer.output_tokens) == ("Grüße 🌊", None, 5)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (event({"content": "x"}), "the stream broke off"),
        (b'data: {"error": {"message": "out of\\nmemory"}}\n\n', "out of memory"),
        (b"data: {nonsense\n\n", "an event of the stream is no chat completion"),
        (b"data: [1, 2]\n\n" + DONE, "an event of the stream is no chat completion"),
        (b'data: {"choices": [3]}\n\n' + DONE, "an event of the stream is no chat completion"),
    ],
)
def test_what_is_no_answer_says_why(body: bytes, error: str) -> None:
    stream = AnswerStream()
    stream.feed(body, 1.0)
    assert stream.answer(1.0).error == error


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    stream = AnswerStream()
    stream.feed(b"data: " + body + b"\n\n", 1.0)
    assert stream.answer(1.0).e2e_s == 1.0
    assert whole_answer(body, 1.0).e2e_s == 1.0


def test_an_answer_that_is_no_stream_has_text_and_no_first_token() -> None:
    body = {
        "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2},
    }
    answer = whole_answer(json.dumps(body).encode(), 3.0)
    assert (answer.text, answer.output_tokens, answer.ttft_s, answer.error) == ("Hi", 2, None, None)
    assert whole_answer(b"<html>", 3.0).error == "the answer is no chat completion"


# ---- targets and their order -----------------------------------------------------------------------------


def test_settings_of_the_target_go_before_those_of_the_case() -> None:
    case = Case("a", ({"role": "user", "content": "Hi"},), settings={"max_tokens": 5, "top_p": 0.5})
    body = Target("candidate", "m", "http://h", settings={"max_tokens": 9}).body(case)
    assert (body["max_tokens"], body["top_p"], body["temperature"], body["stream"]) == (9, 0.5, 0, True)


def test_a_prompt_takes_the_variables_of_the_case() -> None:
    case = Case("a", (), variables={"name": "Ada"}, origin="suite.yaml:3")
    body = Target("candidate", "m", "http://h", prompt="greet@production").body(case)
    assert body["prompt"] == {"id": "greet", "version": "production", "variables": {"name": "Ada"}}
    with pytest.raises(TargetError, match=r"suite.yaml:3: case 'a' has no messages; give --candidate-prompt"):
        Target("candidate", "m", "http://h").body(case)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h", "http://", "http://user:secret@h"])
def test_a_wrong_url_names_its_option_and_no_secret(url: str) -> None:
    with pytest.raises(TargetError, match="--baseline-url") as caught:
        Target("baseline", "m", url)
    assert "secret" not in str(caught.value)


def test_every_case_has_its_turns_and_each_side_is_second_as_often() -> None:
    order = turns(30, 3, 5)
    assert {(turn.number, turn.repeat) for turn in order} == set(product(range(30), range(3)))
    assert sum(turn.is_candidate_second for turn in order) == 45
    assert order == turns(30, 3, 5) != turns(30, 3, 6)
