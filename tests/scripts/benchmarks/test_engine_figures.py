"""What is computed from the engine's answers, without an engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.engine_figures import (
    CHUNKED,
    CHUNKED_ARGUMENTS,
    LONG_ANSWER_TOKENS,
    LONG_TOKENS,
    QUANTISED,
    WHOLE,
    WHOLE_ARGUMENTS,
    Measured,
    Meeting,
    all_figures,
    touched_gaps,
)
from benchmarks.engine_server import (
    WEIGHT_REPORT,
    Answer,
    EngineMemory,
    answer_of,
    engine_command,
    kv_tokens,
    token_ids_of,
)
from benchmarks.load import Sample
from benchmarks.peers import PeerError
from benchmarks.peers.vllm_server import option

from serve_app.settings import EngineSettings

BODY = (
    b"".join(
        b"data: " + json.dumps({"choices": [{"text": text, "token_ids": ids}]}).encode() + b"\n\n"
        for text, ids in (("a", [5]), ("b c", [6, 7]), ("", None))
    )
    + b"data: [DONE]\n\n"
)
METRICS = """# HELP vllm:cache_config_info Information
vllm:cache_config_info{block_size="128",engine="0",num_gpu_blocks="364"} 1.0
"""
MEMORY = EngineMemory(46_592, 269_000_000, 0)


def answer(tpot_s: float, *ids: int, at: tuple[float, ...] = ()) -> Answer:
    return Answer(0.0, 0.1, tpot_s, at, ids)


def test_token_ids_come_from_every_event() -> None:
    assert token_ids_of(BODY) == (5, 6, 7)


def test_a_sample_becomes_an_answer_with_the_times_of_its_chunks() -> None:
    found = answer_of(Sample(200, 1.0, 3.0, ttft_s=0.5, gaps_s=(0.25, 0.75), body=BODY))
    assert found.chunks_s == (1.5, 1.75, 2.5)
    assert found.tpot_s == 0.5
    assert found.token_ids == (5, 6, 7)


def test_a_failed_request_is_an_error_with_its_answer() -> None:
    with pytest.raises(PeerError, match="status 400 no such model"):
        answer_of(Sample(400, 0.0, 1.0, ttft_s=0.1, error="status 400", body=b"no such model"))


def test_the_kv_cache_is_read_from_the_metrics() -> None:
    assert kv_tokens(METRICS) == 46_592
    with pytest.raises(PeerError, match="cache_config_info"):
        kv_tokens("")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--some-name"]),
        (False, ["--no-some-name"]),
        (3, ["--some-name", "3"]),
        ({"a": 1}, ["--some-name", '{"a": 1}']),
    ],
)
def test_engine_arguments_become_words(value: object, words: list[str]) -> None:
    assert option("some_name", value) == words


def test_the_server_reports_its_weights() -> None:
    command = engine_command(Path("/models/small"), CHUNKED_ARGUMENTS, 20_001)
    assert command[-2:] == ["--worker-extension-cls", WEIGHT_REPORT]
    assert "--enable-chunked-prefill" in command


def test_only_gaps_that_the_prefill_touches_count() -> None:
    stream = answer(0.1, 1, 2, 3, 4, at=(0.0, 1.0, 5.0, 6.0, 7.0))
    assert touched_gaps([stream], 1.5, 5.5) == (4.0, 1.0)
    assert touched_gaps([stream], 8.0, 9.0) == ()


@pytest.mark.parametrize("arguments", [CHUNKED_ARGUMENTS, WHOLE_ARGUMENTS])
def test_both_ways_are_settings_that_promptly_takes(arguments: dict[str, object]) -> None:
    EngineSettings.model_validate({"accelerator": "cpu", "cpu_kv_cache_gib": 1, **arguments})
    assert int(str(arguments["max_model_len"])) >= LONG_TOKENS + LONG_ANSWER_TOKENS


def test_figures_are_ratios_within_a_repeat() -> None:
    repeat = {
        CHUNKED: Measured(
            MEMORY,
            MEMORY,
            (0.2, 0.3, 0.4),
            Meeting((0.1, 0.2), 9.0),
        ),
        WHOLE: Measured(MEMORY, MEMORY, meeting=Meeting((1.0, 2.0), 8.0)),
        QUANTISED: Measured(
            MEMORY,
            EngineMemory(46_592, 242_100_000, 0),
            answers=(answer(0.04, 1, 2), answer(0.04, 3, 9)),
            bf16_answers=(answer(0.05, 1, 2), answer(0.05, 3, 4)),
        ),
    }
    medians = {f"{figure.series} {figure.name}".strip(): figure.median for figure in all_figures([repeat])}
    assert medians["TTFT of a second request with the same 1,000 tokens, over the first's"] == 0.3
    assert medians[next(name for name in medians if "chunked over whole" in name)] == pytest.approx(0.1)
    assert medians["TPOT, INT8 over bf16"] == pytest.approx(0.8)
    assert medians["greedy tokens before INT8 first differs from bf16"] == 0.75
    assert medians["INT8 plan's weights, off by"] == pytest.approx(10)
    assert medians["chunked plan's KV tokens, off by"] == 0


def test_without_a_quantised_folder_its_figures_are_left_out() -> None:
    repeat = {
        CHUNKED: Measured(MEMORY, MEMORY, (0.2,), Meeting((0.1,), 9.0)),
        WHOLE: Measured(MEMORY, MEMORY, meeting=Meeting((1.0,), 8.0)),
    }
    assert not [figure for figure in all_figures([repeat]) if "INT8" in figure.name]
