"""The usage chunk disappears from a stream wherever the network cuts it, and nothing else does."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from samples import CHAT_EVENTS, STREAMS

from serve_app.openai.requests import Endpoint
from serve_app.openai.sse import DONE, EventMeter, event, iter_data, json_event
from serve_app.openai.usage import UsageFilter


def filtered(chunks: list[bytes]) -> bytes:
    """What a client receives of a stream that came in these chunks."""
    usage_filter = UsageFilter()
    return b"".join(usage_filter.feed(chunk) for chunk in chunks) + usage_filter.rest()


def cut(stream: bytes, *positions: int) -> list[bytes]:
    return [stream[start:end] for start, end in pairwise((0, *positions, len(stream)))]


def without_usage(events: tuple[bytes, ...]) -> bytes:
    return b"".join(item for item in events if b'"usage":' not in item)


# ---- the filter ----


@pytest.mark.parametrize("endpoint", Endpoint)
def test_the_samples_hold_one_usage_chunk(endpoint: Endpoint) -> None:
    events = STREAMS[endpoint]
    assert [b'"usage":' in item for item in events].count(True) == 1
    assert without_usage(events).endswith(b"\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_cut_in_two_anywhere_loses_its_usage_chunk_and_nothing_else(endpoint: Endpoint) -> None:
    stream, expected = b"".join(STREAMS[endpoint]), without_usage(STREAMS[endpoint])
    for position in range(len(stream) + 1):
        assert filtered(cut(stream, position)) == expected, position


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_cut_in_three_anywhere_loses_its_usage_chunk_and_nothing_else(endpoint: Endpoint) -> None:
    """The end of the stream from its last words on: every kind of boundary, and few enough positions."""
    *_, words, usage, done = STREAMS[endpoint]
    events = (words[-24:], usage, done)
    stream, expected = b"".join(events), without_usage(events)
    for second in range(len(stream) + 1):
        for first in range(second + 1):
            chunks = [stream[:first], stream[first:second], stream[second:]]
            assert filtered(chunks) == expected, (first, second)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 300])
@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_in_chunks_of_any_size_loses_its_usage_chunk_and_nothing_else(
    endpoint: Endpoint, size: int
) -> None:
    stream = b"".join(STREAMS[endpoint])
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert filtered(chunks) == without_usage(STREAMS[endpoint])


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_without_a_usage_chunk_passes_whole_wherever_it_is_cut(endpoint: Endpoint) -> None:
    stream = without_usage(STREAMS[endpoint])
    for position in range(len(stream) + 1):
        assert filtered(cut(stream, position)) == stream


def test_whole_events_pass_as_the_very_same_object() -> None:
    usage_filter = UsageFilter()
    several = b"".join(CHAT_EVENTS[:3])
    for chunk in (*CHAT_EVENTS[:3], several, CHAT_EVENTS[-1]):
        assert usage_filter.feed(chunk) is chunk


def test_the_fast_path_is_taken_again_after_a_cut_event_and_after_the_usage_chunk() -> None:
    usage_filter = UsageFilter()
    head, tail = CHAT_EVENTS[1][:40], CHAT_EVENTS[1][40:]
    assert usage_filter.feed(head) == b""
    assert usage_filter.feed(tail) == CHAT_EVENTS[1]
    assert usage_filter.feed(CHAT_EVENTS[2]) is CHAT_EVENTS[2]
    assert usage_filter.feed(CHAT_EVENTS[3]) == b""
    assert usage_filter.feed(CHAT_EVENTS[4]) is CHAT_EVENTS[4]
    assert usage_filter.rest() == b""


def test_an_event_is_passed_on_as_soon_as_it_is_whole() -> None:
    usage_filter = UsageFilter()
    assert usage_filter.feed(CHAT_EVENTS[0] + CHAT_EVENTS[1][:10]) == CHAT_EVENTS[0]
    assert usage_filter.feed(CHAT_EVENTS[1][10:] + CHAT_EVENTS[2][:10]) == CHAT_EVENTS[1]


def test_text_that_looks_like_a_usage_chunk_passes() -> None:
    chunk = json_event({"choices": [{"index": 0, "delta": {"content": '{"choices":[],"usage":{}}'}}]})
    assert filtered([chunk, CHAT_EVENTS[3], CHAT_EVENTS[4]]) == chunk + CHAT_EVENTS[4]


def test_comments_and_errors_in_a_stream_pass() -> None:
    others = [b": keep-alive\n\n", json_event({"error": {"message": "broke", "code": 500}})]
    assert filtered([others[0], CHAT_EVENTS[0], others[0] + CHAT_EVENTS[3], *others]) == b"".join(
        [others[0], CHAT_EVENTS[0], others[0], *others]
    )


def test_the_rest_of_an_event_that_never_ended_is_given_once() -> None:
    usage_filter = UsageFilter()
    assert usage_filter.feed(CHAT_EVENTS[0] + b"data: {") == CHAT_EVENTS[0]
    assert usage_filter.rest() == b"data: {"
    assert usage_filter.rest() == b""


def test_an_empty_chunk_changes_nothing() -> None:
    assert filtered([b"", CHAT_EVENTS[0], b"", CHAT_EVENTS[4], b""]) == CHAT_EVENTS[0] + CHAT_EVENTS[4]


# ---- writing and reading events ----


def test_an_event_is_one_data_line_and_a_blank_one() -> None:
    assert event(DONE) == b"data: [DONE]\n\n"
    assert json_event({"a": [1, None]}) == b'data: {"a":[1,null]}\n\n'


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "\n\ndata: x\n\n", "\u2028\u2029\x85", "👍"])
def test_no_text_breaks_the_framing_of_its_event(text: str) -> None:
    written = json_event({"text": text})
    assert written.count(b"\n") == 2
    (data,) = iter_data(written)
    assert json.loads(data) == {"text": text}


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"", []),
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:   a  \n\n", [b"a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b": keep-alive\n\nevent: x\nid: 1\ndata: a\nretry: 5\n\n", [b"a"]),
        (b"data: \n\n", [b""]),
        (b"data: a", [b"a"]),
        (b"database: a\n\n", []),
        ("data: \u2028\x85\n\n".encode(), ["\u2028\x85".encode()]),
    ],
)
def test_only_data_lines_are_read(stream: bytes, data: list[bytes]) -> None:
    assert list(iter_data(stream)) == data


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_a_meter_knows_how_long_an_event_is_however_it_is_cut(end: bytes, size: int) -> None:
    meter = EventMeter()
    stream = b"".join(b"data: " + b"x" * length + end for length in (1, 20, 300, 2))
    longest = max(meter.feed(stream[at : at + size]) for at in range(0, len(stream), size))
    assert longest <= 320


def test_a_meter_counts_what_has_not_ended() -> None:
    meter = EventMeter()
    assert meter.feed(b"data: a\n\n") == 0
    assert meter.feed(b"data: b\n\ndata: c") <= 9
    assert [meter.feed(b"x" * 1000) > 1000 * count for count in range(3)] == [True] * 3
    assert meter.feed(b"\n\n") == 0


def test_a_long_event_in_many_pieces_passes_a_filter_whole() -> None:
    usage_filter = UsageFilter()
    stream = b"data: " + b"x" * 5000 + b"\n\ndata: [DONE]\n\n"
    passed = [usage_filter.feed(stream[at : at + 7]) for at in range(0, len(stream), 7)]
    assert b"".join(passed) + usage_filter.rest() == stream
