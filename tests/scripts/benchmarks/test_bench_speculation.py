"""The benchmark of speculation: what it asks, and what it makes of answers and counters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.engine_server import Answer
from benchmarks.options import Options
from benchmarks.peers import PeerError
from benchmarks.speculation import (
    GUARDED,
    NONE,
    PAYS,
    PLAIN,
    SHORT_TOKENS,
    SUFFIX,
    TASKS,
    TOKENS,
    Turn,
    all_figures,
    cases,
    counters,
    ratios,
    read_prompts,
    run,
    shortened,
)

METRICS = """\
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="model"} 120.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="model"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="model",position="0"} 20.0
"""


def turn(tpot_s: float, tokens: tuple[int, ...] = (1, 2, 3)) -> Turn:
    return Turn((Answer(0.0, 0.1, tpot_s, (), tokens),), drafted=8, accepted=2)


def repeat(guarded_s: float, suffix_s: float | None = None) -> dict[tuple[str, str], Turn]:
    times = {NONE: 0.040, PLAIN: 0.030, GUARDED: guarded_s} | ({} if suffix_s is None else {SUFFIX: suffix_s})
    names = (*TASKS, *map(shortened, PAYS))
    return {(case, name): turn(seconds) for case in names for name, seconds in times.items()}


def test_the_first_turns_of_each_task_are_asked(tmp_path: Path) -> None:
    lines = [{"task": task, "turns": [f"{task} {n}", "more"]} for n in range(3) for task in (*TASKS, "other")]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert read_prompts(path, 2) == {task: [f"{task} 0", f"{task} 1"] for task in TASKS}


def test_the_counters_of_drafts_are_read_from_vllms_metrics() -> None:
    assert counters(METRICS) == (120.0, 30.0)
    assert counters("") == (0.0, 0.0)


def test_every_token_after_the_first_counts_alike() -> None:
    short, long = Answer(0.0, 0.1, 0.010, (), (1, 2)), Answer(0.0, 0.1, 0.040, (), (1, 2, 3, 4))
    assert Turn((short, long), 0, 0).tpot_s == pytest.approx((0.010 + 3 * 0.040) / 4)


def test_ratios_are_taken_within_a_repeat() -> None:
    assert ratios([repeat(0.020), repeat(0.040)], TASKS, GUARDED) == pytest.approx((0.5, 1.0))


def test_the_worst_task_has_the_second_target() -> None:
    slow = repeat(0.020) | {("qa", GUARDED): turn(0.041)}
    figures = [
        figure for figure in all_figures([slow], [{1: 30.0, 2: 33.0, 3: 36.0, 5: 45.0}]) if figure.target
    ]
    assert [(figure.name.split(", × ")[0], figure.met) for figure in figures] == [
        ("TPOT, summarization and rag", True),
        ("TPOT, worst task (qa)", True),
    ]


def test_suffixes_have_the_target_where_they_are_measured() -> None:
    figures = all_figures([repeat(0.039, 0.020)], [{1: 30.0, 2: 33.0, 3: 36.0, 5: 45.0}])
    paying = [figure for figure in figures if figure.name == "TPOT, summarization and rag, × none"]
    assert [(figure.series, bool(figure.target)) for figure in paying] == [
        (SUFFIX, True),
        (GUARDED, False),
        (PLAIN, False),
    ]
    assert paying[0].met


def test_tasks_that_are_to_gain_are_asked_for_short_answers_too(tmp_path: Path) -> None:
    found = cases({task: [task] for task in TASKS}, Options(tmp_path))
    assert {name: case.tokens for name, case in found.items()} == dict.fromkeys(
        TASKS, TOKENS
    ) | dict.fromkeys(map(shortened, PAYS), SHORT_TOKENS)
    assert found[shortened("rag")].texts == ["rag"]


def test_prompts_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"nothing\.jsonl is missing"):
        run(Options(tmp_path), tmp_path / "nothing.jsonl")
