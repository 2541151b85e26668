"""Captured traffic becomes cases with their arrivals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.errors import SuiteError
from serve_app.evaluation.case import Assertion
from serve_app.evaluation.traffic import traffic_in


def a_line(at: float = 1000.0, name: str = "r1", **changed: Any) -> str:
    asked = {"model": "big", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 8}
    answer = {"text": "Hello", "tool_calls": [], "complete": True}
    known = {"ttft_ms": 20.0, "total_ms": 120.0, "cache": "miss"}
    given: dict[str, Any] = {"at": at, "request_id": name, "model": "big", "asked": asked, "answer": answer}
    return json.dumps({**given, "request": known, **changed})


def test_requests_keep_their_order_and_their_distances() -> None:
    found = traffic_in([a_line(1002.5, "b"), "", a_line(1000.0, "a")], "y.jsonl", (Assertion("similar"),))
    assert found.arrivals == (0.0, 2.5)
    first, _ = found.cases
    assert first.id.startswith("a@")
    assert first.expected == "Hello"
    assert first.assertions == (Assertion("similar"),)
    assert first.settings == {"max_tokens": 8}
    assert first.origin == "y.jsonl:3"
    assert found.former[first.id] == {"ttft": 0.02, "e2e": 0.12}


def test_a_scorer_that_is_not_there_or_lacks_something_is_named() -> None:
    for name in ("no-such", "regex"):
        with pytest.raises(SuiteError, match=f"--assert {name}: "):
            traffic_in([a_line()], "y", (Assertion(name),))


def test_answers_of_the_cache_have_no_times_to_compare() -> None:
    found = traffic_in(
        [a_line(request={"ttft_ms": 1.0, "total_ms": 1.0, "cache": "exact"})], "y", (Assertion("exact"),)
    )
    assert found.former == {}


def test_scores_are_shown_for_each_arm_of_an_experiment() -> None:
    (case,) = traffic_in([a_line(request={"experiment": "heat=cool"})], "y", (Assertion("exact"),)).cases
    assert case.tags == ("big", "heat=cool")


def test_a_call_of_a_tool_is_only_timed() -> None:
    answer = {"text": "", "tool_calls": [{"function": {"name": "find"}}], "complete": True}
    (case,) = traffic_in([a_line(answer=answer)], "y", (Assertion("exact"),)).cases
    assert (case.expected, case.assertions) == (None, ())


def test_what_is_no_complete_chat_is_left_out_and_counted() -> None:
    cut = a_line(answer={"text": "He", "complete": False})
    completion = a_line(asked={"prompt": "hi"})
    found = traffic_in([a_line(), cut, completion], "y", (Assertion("exact"),))
    assert (len(found.cases), found.left_out) == (1, 2)
    with pytest.raises(SuiteError, match="no complete chat"):
        traffic_in([cut], "y", (Assertion("exact"),))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "y:1: no JSON"),
        ("[]", "y:1: at: missing"),
        ('{"at": 1, "asked": {}}', "y:1: answer: missing"),
        ('{"at": "now", "asked": {}, "answer": {}}', "y:1: at: expected"),
        ('{"at": 1, "asked": [], "answer": {}}', "y:1: asked: expected"),
    ],
)
def test_a_wrong_line_is_named(line: str, says: str) -> None:
    with pytest.raises(SuiteError, match=says):
        traffic_in([line], "y", (Assertion("exact"),))
