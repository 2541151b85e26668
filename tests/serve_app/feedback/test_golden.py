"""Corrections become golden cases."""

from __future__ import annotations

from typing import Any

from serve_app.feedback.golden import golden_suite

ASKED = [{"role": "user", "content": "the capital of {{France}}?"}]


def said(number: int = 1, **changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "number": number,
        "tenant": "acme",
        "request_id": f"r{number}",
        "label": "wrong",
        "correction": "Paris",
        "messages": ASKED,
        "request": {"model": "sim"},
    }
    return {**given, **changed}


def test_a_correction_becomes_a_case_whose_braces_are_no_variables() -> None:
    suite, left_out = golden_suite([said()], "similar")
    assert left_out == 0
    assert suite["cases"] == [
        {
            "id": "feedback-1",
            "messages": ASKED,
            "expected": "Paris",
            "assertions": [{"scorer": "similar"}],
            "tags": ["feedback", "wrong", "sim"],
            "template": False,
        }
    ]


def test_the_newest_correction_of_a_request_counts_and_the_oldest_case_is_first() -> None:
    newest = said(3, request_id="r1", correction="Paris, France")
    suite, _ = golden_suite([newest, said(2, label=None), said(1)], "exact")
    assert [case["expected"] for case in suite["cases"]] == ["Paris", "Paris, France"]
    assert suite["cases"][0]["tags"] == ["feedback", "sim"]


def test_corrections_without_what_was_asked_are_counted_not_guessed() -> None:
    suite, left_out = golden_suite([said(messages=None), said(2, correction=None)], "exact")
    assert (suite["cases"], left_out) == ([], 1)
