"""Chat answers as messages, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.dialects.anthropic.answer import TokenCount
from serve_app.dialects.anthropic.stream import MessagesWriter
from serve_app.dialects.hidden import hidden_reasoning
from serve_app.errors import UpstreamFailed

USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
COUNTED = {
    "input_tokens": 2,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 8,
    "output_tokens": 3,
}


def stream_of(*deltas: dict[str, Any], reason: str = "stop", stop: Any = None, end: bytes = b"\n\n") -> bytes:
    """A chat's stream as vLLM has it."""
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = {"index": 0, "delta": {"content": ""}, "finish_reason": reason, "stop_reason": stop}
    events += [{"choices": [last]}, {"choices": [], "usage": USAGE}]
    data = [json.dumps({"id": "c", "model": "m"} | event).encode() for event in events]
    return b"".join(b"data: " + each + end for each in [*data, b"[DONE]"])


def written(stream: bytes, size: int = 1 << 20) -> list[dict[str, Any]]:
    """The events, from pieces of ``size`` bytes."""
    writer = MessagesWriter("r1", 0)
    pieces = [writer.feed(stream[start : start + size]) for start in range(0, len(stream), size)]
    assert all(piece.endswith(b"\n\n") for piece in pieces if piece), "only whole events"
    events = []
    for event in (b"".join(pieces) + writer.rest()).decode().removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        events.append(value)
    return events


def blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content as a client puts it together; checks that blocks come one after the other."""
    content: list[dict[str, Any]] = []
    is_open = False
    for event in events:
        if event["type"] == "content_block_start":
            assert (event["index"], is_open) == (len(content), False)
            content.append(dict(event["content_block"]))
            is_open = True
        elif event["type"] == "content_block_delta":
            assert (event["index"], is_open) == (len(content) - 1, True)
            for name, value in event["delta"].items():
                if name != "type":
                    content[-1][name] = content[-1].get(name, "") + value
        elif event["type"] == "content_block_stop":
            assert (event["index"], is_open) == (len(content) - 1, True)
            is_open = False
    assert not is_open
    return content


def call(index: int, arguments: str = "", **begin: Any) -> dict[str, Any]:
    """A part of a tool call."""
    function: dict[str, Any] = {"arguments": arguments} if arguments else {}
    if begin:
        begin = {"id": begin["id"], "type": "function"}
        function["name"] = "f"
    return {"tool_calls": [{"index": index, **begin, "function": function}]}


def as_event(delta: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


ROLE = {"role": "assistant", "content": ""}
TASK = [
    ROLE,
    {"reasoning": "I "},
    {"reasoning": "look."},
    {"content": "Wait"},
    {"content": "."},
    call(0, id="t0"),
    call(0, '{"a":'),
    {"content": "\n"},
    call(0, '"é"}'),
    call(1, "{}", id="t1"),
]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_stream_of_everything_however_its_bytes_come(size: int, end: bytes) -> None:
    events = written(stream_of(*TASK, reason="tool_calls", end=end), size)
    assert blocks(events) == [
        {"type": "thinking", "thinking": "I look.", "signature": "msg_r1"},
        {"type": "text", "text": "Wait."},
        {"type": "tool_use", "id": "t0", "name": "f", "input": {}, "partial_json": '{"a":"é"}'},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}, "partial_json": "{}"},
    ]
    first, ping, *_, delta, last = events
    assert first["message"] == {
        "id": "msg_r1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": dict.fromkeys(COUNTED, 0),
    }
    assert ping == {"type": "ping"}
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert delta["usage"] == COUNTED
    assert last == {"type": "message_stop"}


def test_a_tokens_event_is_passed_on_at_once() -> None:
    writer = MessagesWriter("r1", 0)
    for event in stream_of(ROLE, {"content": "a"}, {"content": "b"}).split(b"\n\n")[1:3]:
        assert b'"text_delta"' in writer.feed(event + b"\n\n")


def test_text_between_the_parts_of_a_call_comes_behind_it() -> None:
    events = written(stream_of(call(0, id="t0"), call(0, "{"), {"content": "so"}, call(0, "}")))
    kinds = [block["type"] for block in blocks(events)]
    assert kinds == ["tool_use", "text"]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("reason", "stop", "expected"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", 151643, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("length", None, ("max_tokens", None)),
        ("content_filter", None, ("refusal", None)),
        ("abort", None, ("end_turn", None)),
    ],
)
def test_why_it_ended(reason: str, stop: Any, expected: tuple[str, str | None]) -> None:
    delta = written(stream_of({"content": "a"}, reason=reason, stop=stop))[-2]["delta"]
    assert (delta["stop_reason"], delta["stop_sequence"]) == expected
    choice = {"message": {"content": "a"}, "finish_reason": reason, "stop_reason": stop}
    message = whole({"choices": [choice]})
    assert (message["stop_reason"], message["stop_sequence"]) == expected


def test_an_answer_without_text_has_an_empty_block() -> None:
    assert blocks(written(stream_of(ROLE))) == [{"type": "text", "text": ""}]
    assert blocks(written(b"data: [DONE]\n\n")) == [{"type": "text", "text": ""}]
    assert whole({"choices": [{"message": {"content": None}}]})["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_parts_of_parallel_calls_may_alternate(size: int) -> None:
    parts = [call(0, '{"a"', id="t0"), call(1, '{"b"', id="t1"), call(0, ":1}"), call(1, ":2}"), call(0, " ")]
    assert [block.get("partial_json") for block in blocks(written(stream_of(*parts), size))] == [
        '{"a":1}',
        '{"b":2}',
    ]


def test_a_call_that_follows_a_complete_one_is_passed_on_at_once() -> None:
    writer = MessagesWriter("r1", 0)
    told = writer.feed(b"".join(as_event(part) for part in (call(0, "{}", id="t0"), call(1, "{", id="t1"))))
    assert b'"id":"t1"' in told
    assert told.endswith(b'"partial_json":"{"}}\n\n')


def test_a_thought_inside_a_call_comes_behind_it() -> None:
    events = written(stream_of(call(0, "{", id="t0"), {"reasoning": "hm"}, call(0, "}")))
    assert [block["type"] for block in blocks(events)] == ["tool_use", "thinking"]


def test_a_call_waits_for_its_name_and_may_lack_a_number() -> None:
    late = [
        {"index": 0, "id": "t0", "function": None},
        {"index": 0, "function": {"name": "f", "arguments": "{}"}},
    ]
    unnumbered = [{"id": name, "function": {"name": "f", "arguments": "{}"}} for name in ("t1", "t2")]
    for pieces, ids in ((late, ["t0"]), (unnumbered, ["t1", "t2"])):
        given = blocks(written(stream_of(*({"tool_calls": [piece]} for piece in pieces))))
        assert [(block["id"], block["name"]) for block in given] == [(each, "f") for each in ids]


def test_what_vendors_write_as_null_is_nothing() -> None:
    nulls = [
        {"model": None, "choices": None},
        {"model": None, "choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": "a", "tool_calls": None}}], "usage": None},
    ]
    stream = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in nulls)
    assert blocks(written(stream + b"data: [DONE]\n\n")) == [{"type": "text", "text": "a"}]


def test_a_stream_without_an_end_is_not_reported_as_whole() -> None:
    writer = MessagesWriter("r1", 0)
    writer.feed(as_event({"content": "hal"}))
    with pytest.raises(UpstreamFailed, match="too early"):
        writer.rest()


@pytest.mark.parametrize(("asked", "reason"), [(3, "max_tokens"), (4, "model_context_window_exceeded")])
def test_an_answer_cut_before_its_limit_met_the_end_of_the_context(asked: int, reason: str) -> None:
    writer = MessagesWriter("r1", 0, max_tokens=asked)
    writer.feed(stream_of({"content": "a"}, reason="length"))
    assert f'"stop_reason":"{reason}"'.encode() in writer.rest()
    body = {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}], "usage": USAGE}
    message = MessagesWriter("r1", 0, max_tokens=asked).whole(json.dumps(body).encode())
    assert json.loads(message)["stop_reason"] == reason


def test_thoughts_that_are_not_shown_come_back_hidden() -> None:
    writer = MessagesWriter("r1", 0, omits_thinking=True)
    stream = stream_of({"reasoning": "I "}, {"reasoning": "look."}, {"content": "a"})
    told = writer.feed(stream) + writer.rest()
    assert b"look" not in told
    body = {"choices": [{"message": {"content": "a", "reasoning": "I look."}}]}
    whole = json.loads(MessagesWriter("r1", 0, omits_thinking=True).whole(json.dumps(body).encode()))
    thinking = {"type": "thinking", "thinking": "", "signature": hidden_reasoning("I look.")}
    assert whole["content"][0] == thinking
    assert thinking["signature"].encode() in told


@pytest.mark.parametrize("data", [b"{]", b"[]", b'{"choices":[{"delta":7}]}', b"\xff"])
def test_what_is_no_chat_is_the_engines_failure(data: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        MessagesWriter("r1", 0).feed(b"data: " + data + b"\n\n")
    with pytest.raises(UpstreamFailed):
        MessagesWriter("r1", 0).whole(data)


@pytest.mark.parametrize(
    ("pieces", "match"),
    [
        ([call(0, "{}", id="t0"), call(1, "{}", id="t1"), call(0, "{}")], "complete tool call"),
        ([call(0)], "no name"),
    ],
)
def test_calls_that_cannot_be_written_rightly_are_the_engines_failure(pieces: Any, match: str) -> None:
    writer = MessagesWriter("r1", 0)
    with pytest.raises(UpstreamFailed, match=match):
        _ = writer.feed(stream_of(*pieces)) + writer.rest()


# ---- whole ----


def whole(answer: dict[str, Any]) -> Any:
    return json.loads(MessagesWriter("r1", 0).whole(json.dumps({"model": "m"} | answer).encode()))


def whole_call(arguments: str) -> dict[str, Any]:
    return {"id": "t0", "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_a_whole_answer_of_everything() -> None:
    said = {"content": "Wait.", "reasoning": "hm", "tool_calls": [whole_call('{"a":1}'), whole_call("")]}
    answer = {"choices": [{"message": said, "finish_reason": "tool_calls"}], "usage": USAGE}
    assert whole(answer) == {
        "id": "msg_r1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "msg_r1"},
            {"type": "text", "text": "Wait."},
            {"type": "tool_use", "id": "t0", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "t0", "name": "f", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": COUNTED,
    }


def test_a_call_that_the_length_cut_is_no_call() -> None:
    said = {"content": "a", "tool_calls": [whole_call('{"a":')]}
    message = whole({"choices": [{"message": said, "finish_reason": "length"}]})
    assert [block["type"] for block in message["content"]] == ["text"]
    assert message["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("arguments", ['{"a":', "[]", '"x"'])
def test_arguments_that_are_no_object_reach_the_clients_own_check(arguments: str) -> None:
    message = whole(
        {"choices": [{"message": {"tool_calls": [whole_call(arguments)]}, "finish_reason": "stop"}]}
    )
    assert message["content"] == [
        {"type": "tool_use", "id": "t0", "name": "f", "input": {"arguments": arguments}}
    ]


def test_tokens_are_counted_from_vllms_answer() -> None:
    assert json.loads(TokenCount().whole(b'{"count":7,"tokens":[1]}')) == {"input_tokens": 7}
    with pytest.raises(UpstreamFailed):
        TokenCount().whole(b'{"error":{}}')


def test_a_call_without_an_id_gets_one_that_no_other_turn_has() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    body = json.dumps({"choices": [{"message": {"tool_calls": [call, call]}}]}).encode()
    ids = [
        [block["id"] for block in json.loads(MessagesWriter(turn, 0).whole(body))["content"]]
        for turn in ("a", "b")
    ]
    assert ids == [["toolu_a_0", "toolu_a_1"], ["toolu_b_0", "toolu_b_1"]]
    chunk = json.dumps({"choices": [{"delta": {"tool_calls": [{"index": 0} | call]}}]}).encode()
    assert b'"id":"toolu_a_0"' in MessagesWriter("a", 0).feed(b"data: " + chunk + b"\n\n")
