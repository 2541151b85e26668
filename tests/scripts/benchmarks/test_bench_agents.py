"""The agents' benchmark: what it sends, what it reads, and its figures."""

from __future__ import annotations

import json

import pytest
from benchmarks.agents import (
    LITELLM,
    PROMPTLY,
    ROUND_ROBIN,
    Run,
    Session,
    Turn,
    all_figures,
    request,
    said,
    turn_of,
)
from benchmarks.load import Sample

USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":200,"prompt_tokens_details":{"cached_tokens":160}}}\n\n'
)


def session(ttft_ms: float, cached: int) -> Session:
    return Session(tuple(Turn(100, cached, ttft_ms / 1000) for _ in range(3)), errors=0)


def a_run(ttft_ms: float, cached: int) -> Run:
    return Run(session(ttft_ms, cached), (session(ttft_ms, cached),))


def sample(body: bytes, error: str | None = None) -> Sample:
    return Sample(200, sent_at=0.0, ended_at=1.0, ttft_s=0.1, error=error, body=body)


def test_the_targets_are_those_of_the_session_within_each_repeat() -> None:
    measured = {
        PROMPTLY: [a_run(10.0, 95), a_run(20.0, 92)],
        ROUND_ROBIN: [a_run(100.0, 50), a_run(100.0, 50)],
        LITELLM: [a_run(50.0, 50), a_run(50.0, 50)],
    }
    share, over_round_robin, over_litellm = (each for each in all_figures(measured) if each.target)
    assert share.values == pytest.approx((95.0, 92.0))
    assert over_round_robin.values == pytest.approx((0.1, 0.2))
    assert over_litellm.values == pytest.approx((0.2, 0.4))
    assert all(each.met for each in (share, over_round_robin, over_litellm))
    without = {name: runs for name, runs in measured.items() if name != LITELLM}
    assert len([each for each in all_figures(without) if each.target]) == 2


def test_usage_is_read_from_the_stream_and_a_failure_is_no_turn() -> None:
    assert turn_of(sample(USAGE)) == Turn(200, 160, 0.1)
    assert turn_of(sample(b"data: [DONE]\n\n")) is None
    assert turn_of(sample(USAGE, error="cut")) is None


def test_a_request_names_its_session_and_carries_the_whole_conversation() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    made = request("m", messages, 5, "s-1")
    assert made.headers["x-claude-code-session-id"] == "s-1"
    assert json.loads(made.body)["messages"] == messages


def test_an_answer_without_text_still_is_a_turn() -> None:
    assert said(sample(b"data: [DONE]\n\n")) == "Done."
