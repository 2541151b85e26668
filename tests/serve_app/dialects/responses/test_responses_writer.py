"""Answers to a chat as responses: however the bytes come, and however the answer ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response

from serve_app.dialects import Writer
from serve_app.dialects.responses.dialect import read_alone
from serve_app.dialects.responses.request import read
from serve_app.errors import UpstreamFailed

DONE = b"data: [DONE]\n\n"


def writer(**fields: Any) -> Writer:
    make = read_alone(read({"model": "m", "input": "hi", **fields})).writer
    assert make is not None
    return make("request", 7)


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> bytes:
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": reason}]
    return b"data: " + json.dumps({"model": "real", "choices": choices} | more).encode() + b"\n\n"


def usage() -> bytes:
    details = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    cached = {
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    return chunk(choices=[], usage={**details, **cached})


def events(data: bytes) -> list[dict[str, Any]]:
    found = []
    for event in data.split(b"\n\n")[:-1]:
        name, line = event.split(b"\n")
        found.append(json.loads(line.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found


STREAM = chunk({"role": "assistant", "content": ""}) + chunk({"content": "Hé"}) + chunk({"content": "llo"})
WHOLE = STREAM + chunk(reason="stop") + usage() + DONE


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_bytes_may_be_split_anywhere(size: int) -> None:
    made = writer()
    told = b"".join(made.feed(WHOLE[at : at + size]) for at in range(0, len(WHOLE), size)) + made.rest()
    found = events(told)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    response = found[-1]["response"]
    assert response["output"][0]["content"][0]["text"] == "Héllo"
    assert (response["model"], response["status"], response["created_at"]) == ("real", "completed", 7)
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == 8
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 1
    Response.model_validate(response)


def test_only_the_last_event_is_left_for_the_end() -> None:
    made = writer()
    assert events(made.feed(WHOLE))[-1]["type"] == "response.output_item.done"
    assert [event["type"] for event in events(made.rest())] == ["response.completed"]


def test_comments_and_other_line_ends_are_read() -> None:
    made = writer()
    told = made.feed(b": not yet\n\n" + WHOLE.replace(b"\n", b"\r\n")) + made.rest()
    assert events(told)[-1]["response"]["output"][0]["content"][0]["text"] == "Héllo"


def test_an_answer_that_is_cut_at_its_limit_is_incomplete() -> None:
    made = writer(max_output_tokens=1)
    last = events(made.feed(STREAM + chunk(reason="length") + DONE) + made.rest())[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_an_answer_of_nothing_is_an_empty_text() -> None:
    made = writer()
    last = events(made.feed(chunk(reason="stop") + DONE) + made.rest())[-1]
    assert last["response"]["output"][0]["content"][0]["text"] == ""


@pytest.mark.parametrize("sent", [STREAM, b""], ids=["without its end", "nothing"])
def test_a_stream_that_was_cut_is_no_response(sent: bytes) -> None:
    made = writer()
    made.feed(sent)
    with pytest.raises(UpstreamFailed, match="ended too early"):
        made.rest()


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: 1\n\n", b'data: {"choices": 5}\n\n'])
def test_nonsense_is_the_engines_failure(data: bytes) -> None:
    with pytest.raises(UpstreamFailed, match="no chat completion"):
        writer().feed(data)


def test_pieces_of_parallel_calls_may_alternate() -> None:
    tools = [{"type": "function", "name": "f"}]

    def piece(index: int, arguments: str, **more: Any) -> bytes:
        function = {"arguments": arguments, **({"name": "f"} if more else {})}
        return chunk({"tool_calls": [{"index": index, "function": function, **more}]})

    made = writer(tools=tools)
    begun = piece(0, "", id="a") + piece(1, "[", id="b")
    told = made.feed(begun + piece(0, "{}") + piece(1, "]") + chunk(reason="tool_calls") + DONE) + made.rest()
    calls = events(told)[-1]["response"]["output"]
    assert [(call["call_id"], call["arguments"]) for call in calls] == [("a", "{}"), ("b", "[]")]


def test_a_whole_answer_is_the_same_response_as_a_streamed_one() -> None:
    message = {"role": "assistant", "content": "Héllo", "reasoning": "hm"}
    counted = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    whole = json.loads(
        writer().whole(json.dumps({"model": "real", "choices": choices, "usage": counted}).encode())
    )
    made = writer()
    plain = {"choices": [], "usage": counted}
    sent = (
        chunk({"reasoning": "hm"})
        + chunk({"content": "Héllo"})
        + chunk(reason="stop")
        + chunk(**plain)
        + DONE
    )
    assert whole == events(made.feed(sent) + made.rest())[-1]["response"]
    with pytest.raises(UpstreamFailed):
        writer().whole(b'{"choices": []}')


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_the_events_of_calls_are_numbered_in_their_order(kind: str) -> None:
    made = writer(stream=True, tools=[{"type": kind, "name": "f"}])
    told = b""
    for index in range(2):
        call = {"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": '{"input": "x"}'}}
        told += made.feed(chunk({"tool_calls": [call]}))
    found = events(told + made.feed(chunk(reason="tool_calls") + DONE) + made.rest())
    assert len([event for event in found if event["type"] == "response.output_item.done"]) == 2
    assert [event["sequence_number"] for event in found] == list(range(len(found)))


@pytest.mark.parametrize("arguments", ["", None])
def test_a_call_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    made = writer(stream=True, tools=[{"type": "function", "name": "f"}])
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}
    told = made.feed(chunk({"tool_calls": [call]}) + chunk(reason="tool_calls") + DONE) + made.rest()
    found = events(told)
    (item,) = found[-1]["response"]["output"]
    assert item["arguments"] == "{}"
    assert "".join(event["delta"] for event in found if event["type"].endswith("arguments.delta")) == "{}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))


def test_a_call_that_was_cut_before_its_arguments_has_none() -> None:
    made = writer(stream=True, tools=[{"type": "function", "name": "f"}])
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}
    told = made.feed(chunk({"tool_calls": [call]}) + chunk(reason="length") + DONE) + made.rest()
    (item,) = events(told)[-1]["response"]["output"]
    assert (item["arguments"], item["status"]) == ("", "incomplete")


def test_pieces_of_calls_without_a_number_belong_to_the_call_of_their_id() -> None:
    made = writer(stream=True, tools=[{"type": "function", "name": "f"}])
    pieces: list[dict[str, Any]] = [
        {"index": None, "id": "a", "function": {"name": "f", "arguments": "{"}},
        {"id": "a", "function": {"arguments": "}"}},
        {"index": None, "id": "b", "function": {"name": "f", "arguments": "[]"}},
        {"index": None, "function": None},
    ]
    told = b"".join(made.feed(chunk({"tool_calls": [piece]})) for piece in pieces)
    told += made.feed(chunk(choices=None) + chunk(reason="tool_calls") + DONE) + made.rest()
    calls = events(told)[-1]["response"]["output"]
    assert [(call["call_id"], call["arguments"]) for call in calls] == [("a", "{}"), ("b", "[]")]
