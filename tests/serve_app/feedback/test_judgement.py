"""What a judge is asked, and what is read of its reply."""

from __future__ import annotations

import json

import pytest

from serve_app.feedback.judgement import INSTRUCTION, MOST_CHARS, judge_request, score_in


def reply(text: str | None) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


def test_the_question_and_the_answer_are_in_the_request_and_its_beginning_is_always_the_same() -> None:
    fields = judge_request("judge", "the capital?", "Paris")
    first, second = fields["messages"]
    assert first["content"] == INSTRUCTION
    assert "the capital?" in second["content"]
    assert "Paris" in second["content"]
    assert fields["temperature"] == 0


def test_a_long_text_loses_its_middle() -> None:
    fields = judge_request("judge", "a" * 50_000 + "END", "b")
    assert len(fields["messages"][1]["content"]) < MOST_CHARS + 200
    assert "END" in fields["messages"][1]["content"]


@pytest.mark.parametrize(
    ("said", "score"),
    [("7", 0.7), (" 10 ", 1.0), ("**0**", 0.0), ("8/10", 0.8), ("9.", 0.9), ("Grade: 3", None), ("", None)],
)
def test_a_number_at_the_beginning_is_the_score(said: str, score: float | None) -> None:
    assert score_in(reply(said)) == score


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"{}", b'{"choices": []}', reply(None), reply("100"), reply("-5")]
)
def test_nonsense_is_no_score(body: bytes) -> None:
    assert score_in(body) is None
