"""Log lines: one each, nothing in them can forge another, and those who are refused cannot cause many."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from serve_app.openai.usage import TokenCounts
from serve_app.request.log_line import Bound, RefusalBound, bound_of, log_line
from serve_app.request.record import MOST_CHARS, RequestRecord, StepTime

RECORD = RequestRecord(
    request_id="r1",
    trace_id="0af7651916cd43dd8448eb211c80319c",
    start_unix_ns=1,
    method="POST",
    route="/v1/chat/completions",
    endpoint="chat",
    tenant="a",
    model="sim",
    member="e0",
    session="51",
    cache="miss",
    similarity=None,
    score=None,
    status=200,
    error=None,
    client_gone=False,
    finish_reason="stop",
    streamed=True,
    tokens=TokenCounts(30, 10, 16, None),
    ttft_ms=102.04,
    total_ms=192.5,
    upstream_ms=190.0,
    overhead_ms=2.5,
    itl_ms=10.0,
    steps=(StepTime("admit", 0.0, 1.0),),
)


def test_a_line_says_what_is_known() -> None:
    assert log_line(RECORD, "text") == (
        "request_id=r1 POST /v1/chat/completions 200 trace_id=0af7651916cd43dd8448eb211c80319c tenant=a "
        "model=sim member=e0 session=51 cache=miss finish=stop tokens=30/10 cached=16 ttft_ms=102.0 "
        "total_ms=192.5 upstream_ms=190.0 overhead_ms=2.5"
    )


def test_a_line_names_the_arm_of_an_experiment() -> None:
    line = log_line(msgspec.structs.replace(RECORD, experiment="smaller=small"), "text")
    assert " cache=miss experiment=smaller=small finish=stop " in line


def test_json_has_the_whole_record_in_one_line() -> None:
    line = log_line(RECORD, "json")
    assert "\n" not in line
    value = json.loads(line)
    assert value["tokens"] == {"prompt": 30, "output": 10, "cached": 16, "accepted": None}
    assert value["steps"] == [{"name": "admit", "offset_ms": 0.0, "duration_ms": 1.0}]


def test_a_value_cannot_begin_another_line_or_move_the_cursor() -> None:
    forged = msgspec.structs.replace(RECORD, error="x\nrequest_id=r2\x1b[2K\u2028", member="é")
    line = log_line(forged, "text")
    assert line.isascii()
    assert line.isprintable()
    assert log_line(forged, "json").count("\n") == 0


def test_refusals_have_as_many_lines_as_allowed() -> None:
    bound = RefusalBound(2, 100.0)
    assert [bound.allows(100.0) for _ in range(4)] == [True, True, False, False]
    assert bound.allows(100.5)
    assert bound.take_left_out() == 2
    assert bound.take_left_out() == 0
    assert not bound.allows(100.5)
    assert not bound.allows(99.0)  # a clock that steps back gives nothing
    assert [bound.allows(1000.0) for _ in range(3)] == [True, True, False]


def test_a_value_of_any_length_leaves_a_short_line() -> None:
    endless = msgspec.structs.replace(RECORD, model="m" * 1_000_000, error="e" * 1_000_000)
    assert len(log_line(endless, "text")) < 1_000
    assert len(log_line(endless, "json")) < 2_000


@pytest.mark.parametrize(
    ("changed", "bound"),
    [
        ({}, None),
        ({"status": 503}, None),
        ({"status": 500, "tenant": None}, None),
        ({"status": 401, "tenant": None}, Bound.STRANGER),
        ({"status": 403}, Bound.REFUSED),
        ({"status": 429}, Bound.REFUSED),
        ({"method": "GET", "route": "/version", "tenant": None, "model": None}, Bound.CHEAP),
        ({"status": 304, "tenant": None, "model": None}, Bound.CHEAP),
        ({"status": 0, "model": None, "client_gone": True}, Bound.CHEAP),
        ({"status": 0, "client_gone": True}, None),
        ({"route": "/admin/fleet", "model": None}, None),
    ],
)
def test_a_flood_of_one_kind_hides_no_line_of_another(changed: dict[str, Any], bound: Bound | None) -> None:
    assert bound_of(msgspec.structs.replace(RECORD, **changed)) is bound


def test_what_a_client_or_a_member_chose_is_cut() -> None:
    long = "x" * 1_000_000
    record = msgspec.structs.replace(RECORD, model=long, finish_reason=long, error=long, request_id=long)
    assert len(log_line(record, "text")) < 10 * MOST_CHARS
    assert json.loads(log_line(record, "json"))["model"] == "x" * MOST_CHARS
