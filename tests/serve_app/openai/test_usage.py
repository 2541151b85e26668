"""What an answer's end says is read wherever the network cuts it, and shown only to who asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.openai.sse import DONE, event, json_event
from serve_app.openai.usage import (
    NO_TOKENS,
    AnswerEnd,
    EngineTimes,
    Measured,
    RelayedUsage,
    TokenCounts,
    UsageFilter,
    counts_at_end,
    measured_events,
    measured_relayed,
    measured_whole,
    without_metrics,
)

METRICS = {
    "time_to_first_token_ms": 40.5,
    "generation_time_ms": 90.25,
    "queue_time_ms": 2.0,
    "mean_itl_ms": 10.0,
    "tokens_per_second": 70.0,
    "speculative_decoding": {"acceptance_histogram": [1, 2], "num_accepted_draft_tokens": 4},
}
USAGE = {
    "prompt_tokens": 30,
    "total_tokens": 40,
    "completion_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 16},
}
MEASURED = Measured(TokenCounts(30, 10, 16, 4), "stop", EngineTimes(2.0, 40.5, 90.25))


def chunk(content: str, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}
    return json_event({"id": "c", "choices": [choice]})


def usage_event(**more: Any) -> bytes:
    return json_event({"id": "c", "choices": [], "usage": USAGE, "system_fingerprint": "f", **more})


TEXT = chunk('a "finish_reason":"no" and ,"metrics":{}') + chunk("b")
STREAM = TEXT + chunk("", "stop") + usage_event(metrics=METRICS) + event(DONE)


@pytest.mark.parametrize("hides_usage", [True, False])
@pytest.mark.parametrize("shows_metrics", [True, False])
def test_a_stream_cut_anywhere_says_the_same(hides_usage: bool, shows_metrics: bool) -> None:
    shown = b"" if hides_usage else usage_event(**({"metrics": METRICS} if shows_metrics else {}))
    for position in range(len(STREAM) + 1):
        usage = UsageFilter(hides_usage=hides_usage, shows_metrics=shows_metrics)
        passed = usage.feed(STREAM[:position]) + usage.feed(STREAM[position:]) + usage.rest()
        assert passed == TEXT + chunk("", "stop") + shown + event(DONE), position
        assert usage.measured() == MEASURED, position


def test_events_that_come_one_by_one_say_the_same() -> None:
    usage = UsageFilter()
    for part in (TEXT, chunk("", "stop"), usage_event(metrics=METRICS), event(DONE)):
        usage.feed(part)
    assert usage.measured() == MEASURED
    assert measured_events(STREAM) == MEASURED


def test_a_server_that_says_less_leaves_the_rest_unknown() -> None:
    assert measured_events(TEXT + chunk("", "length") + event(DONE)) == Measured(finish_reason="length")
    bare = json_event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    assert measured_events(TEXT + bare).tokens == TokenCounts(3, 2)
    assert measured_events(TEXT) == Measured()


@pytest.mark.parametrize(
    "end",
    [
        b'data: {"choices":[],"usage":7}\n\n',
        b'data: {"choices":[] \n\n',
        b'data: {"choices":[],"usa\xff":1}\n\n',
    ],
)
def test_an_end_in_another_form_is_unknown_and_passes(end: bytes) -> None:
    usage = UsageFilter(hides_usage=False)
    assert usage.feed(TEXT + end) == TEXT + end
    assert usage.measured() == Measured()


def whole(metrics: Any) -> bytes:
    message = {"role": "assistant", "content": 'says "metrics":{"a":1}'}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(
        {"id": "c", "choices": [choice], "usage": USAGE, "metrics": metrics}, separators=(",", ":")
    ).encode()


def test_a_whole_answer_is_read_and_loses_only_its_metrics() -> None:
    assert measured_whole(whole(METRICS)) == MEASURED
    assert without_metrics(whole(METRICS), null=True) == whole(None)
    assert without_metrics(whole(None), null=True) == whole(None)


@pytest.mark.parametrize("body", [b"", b"[]", b"no", b'{"metrics":3}', b'{"usage":"x"}', b"[" * 10_000])
def test_no_body_breaks_the_reading(body: bytes) -> None:
    assert measured_whole(body) == Measured()
    assert without_metrics(body, null=True) == body


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b'{"metrics":{"a":1},"b":2}', b'{"b":2}'),
        (b'{"a":1,"metrics":{"a":1}}', b'{"a":1}'),
        (b'{"metrics":{"a":{}}}', b"{}"),
    ],
)
def test_metrics_are_cut_out_of_valid_json_wherever_they_stand(body: bytes, left: bytes) -> None:
    assert without_metrics(body, null=False) == left


def test_what_no_member_can_have_measured_is_unknown() -> None:
    said = {
        "choices": [{"finish_reason": "x" * 1000}],
        "usage": {
            "prompt_tokens": -5,
            "completion_tokens": 10**22,
            "prompt_tokens_details": {"cached_tokens": -1},
        },
        "metrics": {"generation_time_ms": 1e308, "queue_time_ms": -1.0, "time_to_first_token_ms": 5.0},
    }
    measured = measured_whole(json.dumps(said).encode())
    assert measured.tokens == TokenCounts()
    assert measured.finish_reason is None
    assert measured.engine == EngineTimes(None, 5.0, None)


@pytest.mark.parametrize(
    ("end", "counts"),
    [
        (b'd"}}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}}\n\n', (7, 9)),
        (b'{"usage": {"input_tokens": 7, "output_tokens": 9, "total_tokens": 16}}', (7, 9)),
        (b'{"usage":{"completion_tokens":1}} {"usage":{"completion_tokens":2}}', (None, 2)),
        (rb'{"content":"\"completion_tokens\": 99999"}', (None, None)),
        (b'{"usage":{"completion_tokens":-3}}', (None, None)),
        (b"", (None, None)),
    ],
)
def test_the_last_bytes_say_how_many_tokens_there_were(
    end: bytes, counts: tuple[int | None, int | None]
) -> None:
    found = counts_at_end(end)
    assert (found.prompt, found.output) == counts


def test_an_answer_that_is_left_early_has_a_token_for_each_piece_that_was_read() -> None:
    end = AnswerEnd()
    for _ in range(3):
        end.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
    end.feed(b"")
    assert (end.tokens(is_stream=True), end.tokens(is_stream=False)) == (TokenCounts(None, 3), NO_TOKENS)
    assert end.tokens(is_stream=True, per_piece=2.5) == TokenCounts(None, 8)
    end.feed(b'data: {"choices":[],"usage":{"prompt_tokens":5,"comple')
    end.feed(b'tion_tokens":2}}\n\n')
    assert end.tokens(is_stream=True) == TokenCounts(5, 2)


VECTORS = b"[" + b"0.25," * 5000 + b"0]"


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (b'{"data":' + VECTORS + b',"usage":{"prompt_tokens":8,"total_tokens":8}}', TokenCounts(8)),
        (b'{"id":"r","usage":{"total_tokens":9},"results":' + VECTORS + b"}", TokenCounts(9)),
        (
            b'data: {"response":{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":2},'
            b'"output_tokens":7,"output_tokens_details":{"reasoning_tokens":1}}}}\n\n',
            TokenCounts(5, 7, 2),
        ),
        (b'{"text":"x \\"usage\\":{\\"prompt_tokens\\":1}"}', TokenCounts()),
        (b'{"usage":{"prompt_tokens":"many"}}', TokenCounts()),
        (b'{"usage":{"prompt_tokens":-3}}', TokenCounts()),
        (b'{"usage":null}', TokenCounts()),
        (b'{"usage":' + b"{" * 4000, TokenCounts()),
        (b"", TokenCounts()),
    ],
)
def test_the_tokens_of_relayed_answers_are_read(answer: bytes, tokens: TokenCounts) -> None:
    assert measured_relayed(answer).tokens == tokens
    whole = RelayedUsage()
    assert b"".join(whole.feed(answer[at : at + 100]) for at in range(0, len(answer), 100)) == answer
    if b"results" not in answer:
        assert whole.measured().tokens == tokens


def test_tokens_that_a_member_was_told_are_not_its_own() -> None:
    end = AnswerEnd()
    end.feed(b'data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":27,"completion_tokens":20}}\n\n')
    end.told = 15
    assert end.tokens(True) == TokenCounts(7, 5)
    end.told = 30
    assert end.tokens(True) == TokenCounts(7, 0)
