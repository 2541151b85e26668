"""Scorers of autoevals: they ask only the judge of the run."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from support.judging import FakeServices, judged

from serve_app.evaluation import ScoreError


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scorer that opens a connection fails; a key in the environment must not be used either."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a scorer opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")


@pytest.mark.parametrize(
    ("name", "text", "expected", "value"),
    [
        ("Levenshtein", "abc", "abd", 2 / 3),
        ("ExactMatch", "abc", "abc", 1.0),
        ("NumericDiff", "It is 9.", 10, 1 - 1 / 19),
        ("NumericDiff", "nothing", 10, 0.0),
        ("JSONDiff", '{"a": 1}', {"a": 1}, 1.0),
        ("ValidJSON", "{", None, 0.0),
        ("ListContains", '["a", "b"]', ["a", "b"], 1.0),
        ("ListContains", "no list", ["a"], 0.0),
    ],
)
def test_scorers_that_compute(name: str, text: str, expected: Any, value: float) -> None:
    score = judged("autoevals", text, expected=expected, name=name)
    assert score.value == pytest.approx(value)
    assert score.passed is (value >= 0.5)


def test_scorers_that_ask_a_model_ask_the_judge() -> None:
    services = FakeServices('{"reasons": "same", "choice": "C"}')
    score = judged("autoevals", "Paris", expected="Paris.", services=services, name="Factuality")
    assert score.value == 1.0
    assert "select_choice" in services.asked[0]
    services = FakeServices('{"choice": "N"}')
    options = {"name": "ClosedQA", "arguments": {"criteria": "It names a city."}}
    assert judged("autoevals", "blue", services=services, **options).value == 0.0


def test_scorers_that_embed_ask_the_embedder() -> None:
    services = FakeServices(vectors={"hi": (1.0, 0.0), "hello": (1.0, 0.1)})
    score = judged("autoevals", "hi", expected="hello", services=services, name="EmbeddingSimilarity")
    assert score.value > 0.9


@pytest.mark.parametrize("reply", ["I like it", '{"choice": "Z"}', '{"reasons": "none"}', "[]"])
def test_nonsense_of_the_judge_is_an_error_and_no_zero(reply: str) -> None:
    with pytest.raises(ScoreError):
        judged("autoevals", "Paris", expected="Paris", services=FakeServices(reply), name="Factuality")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "Nose"}, "no scorer 'Nose'"),
        ({"name": "init"}, "no scorer 'init'"),
        ({"name": "Moderation"}, "moderation service"),
        (
            {"name": "Factuality", "options": {"base_url": "http://example.org"}},
            "the run decides who is asked",
        ),
        ({"name": "Levenshtein", "options": {"nose": 1}}, "refuses them"),
    ],
)
def test_what_cannot_run_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        judged("autoevals", "a", expected="b", **options)


def test_a_long_answer_is_not_compared_letter_by_letter() -> None:
    assert not judged("autoevals", "a" * 1_000_000, expected="b" * 1000, name="Levenshtein").passed


def test_without_the_library_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "autoevals", None)
    with pytest.raises(ValueError, match=r"promptly-serve\[eval\]"):
        judged("autoevals", "a", expected="a", name="ExactMatch")
