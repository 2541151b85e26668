"""A session that repeats its last message fast is in a loop; other sessions are not."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.monitoring.loops import LoopWatch, mark_of
from serve_app.openai.requests import Endpoint, generation_from


def chat(*contents: Any) -> Any:
    messages = [{"role": "user", "content": content} for content in contents]
    return generation_from(Endpoint.CHAT, {"model": "m", "messages": messages}).generation


def test_the_same_message_again_and_again_is_a_loop_once() -> None:
    watch = LoopWatch(3, within_s=60.0)
    assert [watch.saw("s", 1, float(at)) for at in range(7)] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]


def test_another_message_in_between_begins_anew() -> None:
    watch = LoopWatch(3, within_s=60.0)
    assert not any(watch.saw("s", mark, 0.0) for mark in (1, 1, 2, 1, 1, 2))


def test_a_slow_repetition_is_no_loop() -> None:
    watch = LoopWatch(3, within_s=60.0)
    assert not any(watch.saw("s", 1, at * 31.0) for at in range(20))


def test_sessions_are_apart_and_the_silent_ones_are_forgotten() -> None:
    watch = LoopWatch(2, within_s=60.0, most_sessions=2)
    assert not watch.saw("a", 1, 0.0)
    assert not watch.saw("b", 1, 0.0)
    assert not watch.saw("c", 1, 0.0)
    assert not watch.saw("a", 1, 0.0), "it was forgotten"
    assert watch.saw("c", 1, 0.0)


def test_the_mark_is_that_of_the_last_message_in_its_session() -> None:
    mark = mark_of("s", chat("first", "run the tests"))
    assert mark == mark_of("s", chat("first", "other", "run the tests"))
    assert mark == mark_of("s", chat([{"type": "text", "text": "run the tests"}]))
    assert mark != mark_of("s", chat("run the test"))
    assert mark != mark_of("t", chat("run the tests"))


@pytest.mark.parametrize("content", ["", [{"type": "image_url", "image_url": {"url": "data:,"}}], []])
def test_without_text_there_is_no_mark(content: Any) -> None:
    assert mark_of("s", chat(content)) is None


def test_of_a_text_completion_the_end_of_the_prompt_counts() -> None:
    def completion(prompt: Any) -> Any:
        return generation_from(Endpoint.COMPLETIONS, {"model": "m", "prompt": prompt}).generation

    assert mark_of("s", completion("a" * 9000 + "end")) == mark_of("s", completion("a" * 8000 + "end"))
    assert mark_of("s", completion([1, 2, 3])) is None
