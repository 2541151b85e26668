"""A stream that is generated again goes on where the first one was lost, or ends with an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.errors import UpstreamFailed
from serve_app.openai.regenerated import Regenerated

DONE = b"data: [DONE]\n\n"


def event(text: str | None, name: str = "first", finish: str | None = None, **delta: Any) -> bytes:
    said = delta if text is None else {"content": text, **delta}
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return data({"id": name, "created": 1 if name == "first" else 2, "choices": [choice]})


def usage(name: str = "first") -> bytes:
    return data({"id": name, "created": 2, "choices": [], "usage": {"total_tokens": 3}})


def data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def again(*texts: str) -> bytes:
    events = [event("", "second", role="assistant"), *(event(text, "second") for text in texts)]
    return b"".join([*events, event("", "second", finish="stop"), usage("second"), DONE])


def said(passed: bytes) -> str:
    payloads = [line[6:] for line in passed.splitlines() if line.startswith(b"data: {")]
    choices = [choice for each in payloads for choice in json.loads(each)["choices"]]
    return "".join(choice["delta"].get("content") or choice.get("text", "") for choice in choices)


@pytest.mark.parametrize("texts", [("ab", "cd", "ef"), ("abcdef",), ("a", "b", "c", "d", "e", "f")])
@pytest.mark.parametrize("sent", ["", "a", "abc", "abcdef"])
def test_only_what_is_new_is_passed_on(texts: tuple[str, ...], sent: str) -> None:
    stream = Regenerated([event("", role="assistant"), event(sent)])
    passed = stream.feed(again(*texts))
    assert said(passed) == "abcdef"[len(sent) :]
    assert passed.endswith(DONE)
    assert b'"usage"' in passed
    assert b"second" not in passed  # clients merge events by their id


def test_bytes_may_be_cut_anywhere() -> None:
    stream, passed = Regenerated([event("abc")]), b""
    for byte in again("ab", "cd"):
        passed += stream.feed(bytes((byte,)))
    assert said(passed) == "d"


def test_reasoning_is_compared_too() -> None:
    stream = Regenerated([event(None, reasoning="hm"), event("a")])
    second = event(None, "second", reasoning="hm") + event("ab", "second")
    assert said(stream.feed(second)) == "b"


def test_text_completions_go_on_too() -> None:
    first = data({"id": "first", "created": 1, "choices": [{"text": "ab", "finish_reason": None}]})
    second = data({"id": "second", "created": 2, "choices": [{"text": "abc", "finish_reason": None}]})
    passed = json.loads(Regenerated([first]).feed(second)[6:])
    assert (passed["id"], passed["choices"][0]["text"]) == ("first", "c")


@pytest.mark.parametrize("texts", [("abX", "def"), ("ab",)], ids=["another", "shorter"])
def test_another_text_ends_with_an_error(texts: tuple[str, ...]) -> None:
    with pytest.raises(UpstreamFailed):
        Regenerated([event("abc")]).feed(again(*texts))


def test_what_was_lost_after_its_end_is_not_said_twice() -> None:
    stream = Regenerated([event("abc"), event("", finish="stop"), usage()])
    assert stream.feed(again("abc")) == DONE
    assert Regenerated([event("abc"), DONE]).is_done


def test_bytes_that_are_no_events_end_with_an_error() -> None:
    with pytest.raises(UpstreamFailed):
        Regenerated([]).feed(b"data: {nothing\n\n")
