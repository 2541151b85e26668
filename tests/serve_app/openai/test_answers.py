"""Only a whole answer that is text and nothing else is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
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

from serve_app.openai.answers import (
    Answer,
    Usage,
    answer_from_json,
    answer_from_stream,
    decode_answer,
    encode_answer,
)
from serve_app.openai.requests import Endpoint
from serve_app.openai.sse import json_event

Change = Callable[[dict[str, Any]], Any]

COMPLETION_JSON = json.dumps(
    {
        "id": "cmpl-882a2f417105d274",
        "object": "text_completion",
        "created": 1795238817,
        "model": "smollm2",
        "choices": [
            {"index": 0, "text": " Paris", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
        ],
        "system_fingerprint": "vllm-0.29.0-7dcd8c51",
        "usage": {"prompt_tokens": 5, "total_tokens": 8, "completion_tokens": 3},
    }
).encode()

ERROR_EVENT = b'data: {"error":{"message":"broke","type":"InternalServerError","param":null,"code":500}}\n\n'

NO_RESPONSES = {
    "nothing": b"",
    "text": b"<html>",
    "half": CHAT_JSON[:-1],
    "invalid UTF-8": b'{"choices":"\xff"}',
    "null": b"null",
    "a list": b"[1]",
    "an error": b'{"error":{"message":"broke"}}',
    "choices are null": b'{"choices":null}',
    "a choice is null": b'{"choices":[null]}',
    "a choice is a text": b'{"choices":["x"]}',
    "a choice is empty": b'{"choices":[{}]}',
    "deeply nested": b'{"choices":' + b"[" * 100_000,
}


NOT_WHOLE_OR_NOT_PLAIN: dict[str, Change] = {
    "length": lambda it: it["choices"][0].update(finish_reason="length"),
    "tool_calls": lambda it: it["choices"][0].update(finish_reason="tool_calls"),
    "abort": lambda it: it["choices"][0].update(finish_reason="abort"),
    "unfinished": lambda it: it["choices"][0].update(finish_reason=None),
    "finish_reason missing": lambda it: it["choices"][0].pop("finish_reason"),
    "logprobs": lambda it: it["choices"][0].update(logprobs={"content": []}),
    "another index": lambda it: it["choices"][0].update(index=1),
    "message missing": lambda it: it["choices"][0].pop("message"),
    "message null": lambda it: it["choices"][0].update(message=None),
    "message a text": lambda it: it["choices"][0].update(message="hi"),
    "content a list": lambda it: it["choices"][0]["message"].update(content=["hi"]),
    "content a number": lambda it: it["choices"][0]["message"].update(content=5),
    "no choice": lambda it: it["choices"].clear(),
    "two choices": lambda it: it["choices"].append(it["choices"][0]),
    "choices missing": lambda it: it.pop("choices"),
    "usage missing": lambda it: it.pop("usage"),
    "usage null": lambda it: it.update(usage=None),
    "usage incomplete": lambda it: it["usage"].pop("completion_tokens"),
    "usage a text": lambda it: it["usage"].update(total_tokens="many"),
    "usage with a null": lambda it: it["usage"].update(prompt_tokens=None),
    "model missing": lambda it: it.pop("model"),
}


def chat_json(change: Change) -> bytes:
    response = json.loads(CHAT_JSON)
    change(response)
    return json.dumps(response).encode()


def chat_stream(*deltas: dict[str, Any], **last: Any) -> list[bytes]:
    """A stream of these deltas between the first and the last event; ``last`` changes the last choice."""
    end = {
        "index": 0,
        "delta": {"content": ""},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": None,
    }
    middle = [json_event({"model": "smollm2", "choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    finish = json_event({"model": "smollm2", "choices": [end | last]})
    return [CHAT_EVENTS[0], *middle, finish, *CHAT_EVENTS[-2:]]


# ---- JSON ----


def test_a_chat_response_is_read() -> None:
    assert answer_from_json(CHAT, CHAT_JSON) == Answer(
        model="smollm2",
        text="The capital of France is Paris.",
        usage=Usage(prompt_tokens=37, completion_tokens=8, total_tokens=45),
        stop_reason=None,
        system_fingerprint="vllm-0.29.0-7dcd8c51",
    )


def test_a_text_completion_is_read() -> None:
    expected = Answer("smollm2", " Paris", Usage(5, 3, 8), None, "vllm-0.29.0-7dcd8c51")
    assert answer_from_json(COMPLETIONS, COMPLETION_JSON) == expected


@pytest.mark.parametrize("stop_reason", [None, "END", "", 128001])
def test_the_reason_to_stop_is_kept(stop_reason: str | int | None) -> None:
    answer = answer_from_json(CHAT, chat_json(lambda it: it["choices"][0].update(stop_reason=stop_reason)))
    assert answer is not None
    assert answer.stop_reason == stop_reason


def test_fields_that_are_not_there_need_not_be() -> None:
    def only_the_needed(response: dict[str, Any]) -> None:
        response.pop("system_fingerprint")
        response["choices"][0] = {"message": {"content": "hi"}, "finish_reason": "stop"}

    assert answer_from_json(CHAT, chat_json(only_the_needed)) == Answer("smollm2", "hi", Usage(37, 8, 45))


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_answer_is_an_answer(content: str | None) -> None:
    answer = answer_from_json(CHAT, chat_json(lambda it: it["choices"][0]["message"].update(content=content)))
    assert answer is not None
    assert answer.text == ""


@pytest.mark.parametrize(
    "extra",
    [
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"reasoning": "Let me think."},
        {"reasoning_content": "Let me think."},
        {"refusal": "I cannot."},
        {"function_call": {"name": "f"}},
        {"audio": {"id": "a"}},
        {"annotations": [{"type": "url_citation"}]},
        {"a_field_of_tomorrow": "x"},
    ],
    ids=str,
)
def test_a_message_that_says_more_than_text_is_not_kept(extra: dict[str, Any]) -> None:
    assert answer_from_json(CHAT, chat_json(lambda it: it["choices"][0]["message"].update(extra))) is None
    assert answer_from_stream(CHAT, chat_stream({"content": "a"}, extra)) is None


@pytest.mark.parametrize("change", NOT_WHOLE_OR_NOT_PLAIN.values(), ids=NOT_WHOLE_OR_NOT_PLAIN)
def test_a_response_that_is_not_a_whole_plain_answer_is_not_kept(change: Change) -> None:
    assert answer_from_json(CHAT, chat_json(change)) is None


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("body", NO_RESPONSES.values(), ids=NO_RESPONSES)
def test_a_body_that_is_no_response_is_not_kept(body: bytes, endpoint: Endpoint) -> None:
    assert answer_from_json(endpoint, body) is None


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("body", NO_RESPONSES.values(), ids=NO_RESPONSES)
def test_a_stream_with_an_event_that_is_no_chunk_is_not_kept(body: bytes, endpoint: Endpoint) -> None:
    events = STREAMS[endpoint]
    assert answer_from_stream(endpoint, [events[0], b"data: " + body + b"\n\n", *events[1:]]) is None


def test_an_answer_to_the_other_endpoint_is_not_kept() -> None:
    assert answer_from_json(COMPLETIONS, CHAT_JSON) is None
    assert answer_from_json(CHAT, COMPLETION_JSON) is None
    assert answer_from_stream(COMPLETIONS, CHAT_EVENTS) is None
    assert answer_from_stream(CHAT, COMPLETION_EVENTS) is None


# ---- streams ----


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_is_read(endpoint: Endpoint) -> None:
    assert answer_from_stream(endpoint, STREAMS[endpoint]) == STREAMED_ANSWERS[endpoint]


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_is_read_the_same_however_it_was_cut(endpoint: Endpoint) -> None:
    stream = b"".join(STREAMS[endpoint])
    for size in (1, 3, 50, len(stream)):
        chunks = (stream[start : start + size] for start in range(0, len(stream), size))
        assert answer_from_stream(endpoint, chunks) == STREAMED_ANSWERS[endpoint]


def test_the_pieces_of_a_stream_are_joined() -> None:
    answer = answer_from_stream(
        CHAT, chat_stream(*({"content": piece} for piece in ("a", " ", "", "b\n", "👍")))
    )
    assert answer is not None
    assert answer.text == "a b\n👍"


def test_the_reason_to_stop_a_stream_is_kept() -> None:
    answer = answer_from_stream(CHAT, chat_stream({"content": "a"}, stop_reason="END"))
    assert answer is not None
    assert answer.stop_reason == "END"


def test_comments_in_a_stream_do_not_matter() -> None:
    commented = [b": keep-alive\n\n" + item for item in CHAT_EVENTS]
    assert answer_from_stream(CHAT, commented) == STREAMED_ANSWERS[CHAT]


def test_the_last_usage_of_a_stream_that_reports_it_all_along_is_kept() -> None:
    along = json_event(
        {
            "model": "smollm2",
            "choices": [{"index": 0, "delta": {"content": "a"}}],
            "usage": {"prompt_tokens": 37, "completion_tokens": 1, "total_tokens": 38},
        }
    )
    answer = answer_from_stream(CHAT, [CHAT_EVENTS[0], along, *CHAT_EVENTS[1:]])
    assert answer is not None
    assert (answer.text, answer.usage) == ("aThe", Usage(37, 8, 45))


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_that_was_cut_off_anywhere_is_not_kept(endpoint: Endpoint) -> None:
    stream = b"".join(STREAMS[endpoint]).rstrip()
    for end in range(len(stream)):
        assert answer_from_stream(endpoint, [stream[:end]]) is None, end


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_without_its_usage_chunk_is_not_kept(endpoint: Endpoint) -> None:
    events = [item for item in STREAMS[endpoint] if b'"usage":' not in item]
    assert answer_from_stream(endpoint, events) is None


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_with_an_error_in_it_is_not_kept(endpoint: Endpoint) -> None:
    events = STREAMS[endpoint]
    for position in range(len(events) + 1):
        assert answer_from_stream(endpoint, [*events[:position], ERROR_EVENT, *events[position:]]) is None


@pytest.mark.parametrize(
    "last",
    [
        {"finish_reason": "length"},
        {"finish_reason": "tool_calls"},
        {"finish_reason": None},
        {"logprobs": {"content": []}},
        {"index": 1},
        {"delta": {"tool_calls": [{"index": 0}]}},
        {"delta": None},
    ],
    ids=str,
)
def test_a_stream_that_does_not_end_plainly_is_not_kept(last: dict[str, Any]) -> None:
    assert answer_from_stream(CHAT, chat_stream({"content": "a"})) is not None
    assert answer_from_stream(CHAT, chat_stream({"content": "a"}, **last)) is None


@pytest.mark.parametrize("finish_reason", ["length", None, "abort"])
def test_a_text_completion_that_does_not_end_by_itself_is_not_kept(finish_reason: str | None) -> None:
    wrong = json.dumps(finish_reason).encode()
    stream = b"".join(COMPLETION_EVENTS).replace(b'"finish_reason":"stop"', b'"finish_reason":' + wrong)
    assert answer_from_stream(COMPLETIONS, [stream]) is None


def test_an_empty_stream_and_one_of_nothing_but_its_end_are_not_kept() -> None:
    assert answer_from_stream(CHAT, []) is None
    assert answer_from_stream(CHAT, [CHAT_EVENTS[-1]]) is None
    assert answer_from_stream(CHAT, CHAT_EVENTS[-2:]) is None


# ---- storing ----


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("stop_reason", [None, "END", 128001])
def test_an_answer_survives_encoding(text: str, stop_reason: str | int | None) -> None:
    answer = make_answer(text, stop_reason=stop_reason, system_fingerprint="f")
    assert decode_answer(encode_answer(answer)) == answer
    assert decode_answer(encode_answer(answer).decode()) == answer


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b'{"model":"m","text":5,"usage":{}}'])
def test_what_is_no_answer_is_not_decoded(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_answer(data)
