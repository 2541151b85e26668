"""What is kept of a request and its answer, and how it is redacted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.feedback.captured import content_of, is_drawn, redacted
from serve_app.feedback.spans import span_attributes, span_ids, span_times

ASKED: dict[str, Any] = {
    "model": "sim",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "call 030 1234567"}]}],
    "cache_salt": "secret",
    "user": "ann",
    "temperature": 0,
}


def event(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def test_a_stream_is_joined_wherever_it_was_cut() -> None:
    whole = (
        event(delta={"role": "assistant", "content": ""})
        + event(delta={"content": "Par"})
        + event(delta={"content": "is"}, finish_reason="stop")
        + b'data: {"choices": [], "usage": {"prompt_tokens": 3}}\n\ndata: [DONE]\n\n'
    )
    for cut in range(0, len(whole), 7):
        content = content_of(ASKED, [whole[:cut], whole[cut:]], streamed=True, complete=True)
        assert (content.text, content.finish_reason) == ("Paris", "stop")
    assert content.request == {name: ASKED[name] for name in ("model", "messages", "temperature")}


def test_tool_calls_of_a_stream_are_put_together() -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "find", "arguments": '{"a"'}}
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    parts = [event(delta={"tool_calls": [first]}), event(delta={"tool_calls": [rest]})]
    (call,) = content_of(ASKED, parts, streamed=True, complete=True).tool_calls
    assert (call["id"], call["function"]) == ("c1", {"name": "find", "arguments": '{"a": 1}'})


def test_whole_answers_of_both_endpoints_are_read() -> None:
    chat = json.dumps({"choices": [{"message": {"content": "Paris"}, "finish_reason": "length"}]}).encode()
    text = json.dumps({"choices": [{"text": "Paris", "finish_reason": "length"}]}).encode()
    for body in (chat, text):
        content = content_of(ASKED, [body], streamed=False, complete=True)
        assert (content.text, content.finish_reason) == ("Paris", "length")


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"{}", b'{"choices": []}'])
def test_an_answer_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no answer"):
        content_of(ASKED, [body], streamed=False, complete=True)


def test_every_text_is_redacted_and_words_of_the_api_are_not() -> None:
    parts = [event(delta={"content": "it is 030 1234567"})]
    content = content_of(ASKED, parts, streamed=True, complete=True)
    changed = redacted(content, lambda text: "x")
    assert changed.text == "x"
    assert changed.request["model"] == "sim"
    assert changed.request["messages"] == [{"role": "user", "content": [{"type": "text", "text": "x"}]}]


def test_a_share_of_the_names_is_drawn_always_the_same() -> None:
    names = [f"session-{number}" for number in range(10_000)]
    drawn = {name for name in names if is_drawn(name, 0.2)}
    assert 0.18 < len(drawn) / len(names) < 0.22
    assert drawn == {name for name in names if is_drawn(name, 0.2)}
    assert drawn < {name for name in names if is_drawn(name, 0.5)}
    assert all(is_drawn(name, 1.0) for name in names)
    assert not any(is_drawn(name, 0.0) for name in names)


def a_capture(**changed: Any) -> dict[str, Any]:
    known = {"prompt_tokens": 3, "output_tokens": 1, "total_ms": 20.0, "finish_reason": "stop"}
    given: dict[str, Any] = {
        "tenant": "acme",
        "request_id": "r1",
        "at": 1000.5,
        "endpoint": "/v1/chat/completions",
        "model": "sim",
        "request": known,
    }
    return {**given, **changed}


def test_a_span_has_texts_only_where_they_are_given() -> None:
    assert "Paris" not in json.dumps(span_attributes(a_capture()))
    answer = {"text": "Paris", "tool_calls": [], "finish_reason": "stop", "complete": True}
    with_texts = span_attributes(a_capture(asked=ASKED, answer=answer))
    (said,) = json.loads(str(with_texts["gen_ai.output.messages"]))
    assert said == {"role": "assistant", "parts": [{"type": "text", "content": "Paris"}]}
    assert with_texts["gen_ai.usage.input_tokens"] == 3


def test_langfuse_gets_a_generation_with_its_first_token_and_tags() -> None:
    """By the names of its SDK's ``LangfuseOtelSpanAttributes``."""
    known = {"ttft_ms": 12.0, "experiment": "heat=cool", "cache": "miss"}
    found = span_attributes(a_capture(request=known))
    assert found["langfuse.observation.type"] == "generation"
    assert found["langfuse.observation.completion_start_time"] == '"1970-01-01T00:16:40.512Z"'
    assert found["langfuse.trace.tags"] == ["acme", "miss", "heat=cool"]


def test_phoenix_gets_messages_leaf_by_leaf() -> None:
    """By the names of ``openinference.semconv.trace``."""
    call = {"id": "c1", "function": {"name": "find", "arguments": "{}"}}
    answer = {"text": "", "tool_calls": [call], "finish_reason": "tool_calls", "complete": True}
    asked = {"messages": [{"role": "system", "content": "Be short."}, *ASKED["messages"]], "temperature": 0}
    found = span_attributes(a_capture(asked=asked, answer=answer))
    assert found["llm.input_messages.0.message.role"] == "system"
    assert found["llm.input_messages.0.message.content"] == "Be short."
    assert found["llm.input_messages.1.message.contents.0.message_content.text"] == "call 030 1234567"
    tool = "llm.output_messages.0.message.tool_calls.0.tool_call"
    assert (found[f"{tool}.id"], found[f"{tool}.function.name"]) == ("c1", "find")
    assert json.loads(str(found["llm.invocation_parameters"])) == {"temperature": 0}
    assert json.loads(str(found["metadata"]))["tenant"] == "acme"


def test_a_span_is_the_same_at_every_export() -> None:
    assert span_ids(a_capture()) == span_ids(a_capture())
    assert span_ids(a_capture()) != span_ids(a_capture(tenant="other"))
    assert span_times(a_capture()) == (1_000_500_000_000, 1_000_520_000_000)
