"""The trace becomes requests whose prompts share what they shared, at times and lengths that are scaled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.mooncake import SESSION_HEADER, TICK_S, Arrival, Replay, arrivals, block_text, tokens_per_s

ROWS = [
    {"timestamp": 0, "input_length": 1500, "output_length": 320, "hash_ids": [0, 1, 2]},
    {"timestamp": 0, "input_length": 1024, "output_length": 3, "hash_ids": [0, 5]},
    {"timestamp": 3000, "input_length": 2100, "output_length": 160, "hash_ids": [0, 1, 3, 4, 9]},
    {"timestamp": 60_000, "input_length": 100, "output_length": 16, "hash_ids": [7]},
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def by_prompt(found: list[Arrival]) -> list[Arrival]:
    order = [tuple(row["hash_ids"]) for row in ROWS]
    return sorted(found, key=lambda arrival: order.index(tuple(block for block, _ in arrival.blocks)))


def text(arrival: Arrival) -> str:
    body: dict[str, Any] = json.loads(arrival.request("m").body)
    content: str = body["messages"][0]["content"]
    return content


def test_lengths_are_divided_by_one_scale(trace: Path) -> None:
    first, second, third, last = by_prompt(arrivals(Replay(length_scale=16), trace))
    assert first.blocks == ((0, 32), (1, 32), (2, round((1500 - 1024) / 16)))
    assert second.blocks == ((0, 32), (5, 32))
    assert third.prompt_tokens == pytest.approx(2100 / 16, abs=1)
    assert [arrival.output_tokens for arrival in (first, second, third, last)] == [20, 1, 10, 1]


def test_arrivals_are_in_order_within_their_ticks_and_start_at_once(trace: Path) -> None:
    found = arrivals(Replay(speed=10), trace)
    times = [arrival.at_s for arrival in found]
    assert times == sorted(times)
    assert times[0] == 0
    assert (60 - TICK_S) / 10 <= times[-1] <= (60 + TICK_S) / 10


def test_a_seed_is_a_replay(trace: Path) -> None:
    assert arrivals(Replay(seed=1), trace) == arrivals(Replay(seed=1), trace)
    assert arrivals(Replay(seed=1), trace) != arrivals(Replay(seed=2), trace)


def test_prompts_share_the_text_of_the_blocks_that_they_share(trace: Path) -> None:
    first, second, third, _ = map(text, by_prompt(arrivals(Replay(), trace)))
    assert first[: 2 * 128] == third[: 2 * 128]
    assert first[2 * 128 :] != third[2 * 128 : 2 * 128 + len(first[2 * 128 :])]
    assert first[:128] == second[:128]
    assert first[128:256] != second[128:256]


def test_a_text_has_four_characters_a_token_and_is_the_blocks_own() -> None:
    assert len(block_text(3, 32)) == 128
    assert block_text(3, 32).startswith(block_text(3, 5))
    assert len({block_text(block, 32) for block in range(1000)}) == 1000


def test_the_request_asks_for_an_answer_of_the_given_length(trace: Path) -> None:
    arrival = by_prompt(arrivals(Replay(), trace))[0]
    request = arrival.request("some-model")
    body = json.loads(request.body)
    assert (body["model"], body["max_tokens"], body["ignore_eos"], body["stream"]) == (
        "some-model",
        arrival.output_tokens,
        True,
        True,
    )
    assert request.headers == {SESSION_HEADER: "1"}


def test_the_second_block_names_the_conversation(trace: Path) -> None:
    sessions = [arrival.session for arrival in by_prompt(arrivals(Replay(), trace))]
    assert sessions == ["1", "5", "1", "7"]


def test_the_rate_is_what_arrives_over_the_whole(trace: Path) -> None:
    found = arrivals(Replay(), trace)
    assert tokens_per_s(found) == sum(one.prompt_tokens for one in found) / found[-1].at_s
