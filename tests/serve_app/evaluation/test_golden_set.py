"""The golden set that is shipped: every case decides, for the right answer and against a wrong one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from support.judging import FakeServices

from serve_app.evaluation import Answer, Case, CaseScore
from serve_app.evaluation.scorers.registry import score_case
from serve_app.evaluation.suite import load_suite

GOLDEN = Path(__file__).parents[3] / "config" / "golden" / "small-model.yaml"
SUITE = load_suite(GOLDEN)
WRONG = Answer(
    "Zebra 987654321?",
    tool_calls=({"function": {"name": "buy_zebra", "arguments": "{}"}},),
    finish_reason="stop",
)


def right(case: Case) -> Answer:
    """What the case expects, as a model would say it."""
    scorers = {each.scorer for each in case.assertions}
    if "tool-calls" in scorers:
        calls = (
            {"name": call["name"], "arguments": json.dumps(call.get("arguments", {}))}
            for call in case.expected
        )
        return Answer(tool_calls=tuple({"function": call} for call in calls), finish_reason="tool_calls")
    if scorers & {"json-equal", "json-schema"}:
        return Answer(f"```json\n{json.dumps(case.expected)}\n```")
    return Answer(", ".join(case.expected) if isinstance(case.expected, list) else str(case.expected))


def scored(case: Case, answer: Answer) -> CaseScore:
    return asyncio.run(score_case(case, answer, FakeServices()))


def test_it_is_large_enough_and_covers_many_kinds() -> None:
    assert len(SUITE.cases) >= 100
    tags = Counter(tag for case in SUITE.cases for tag in case.tags)
    kinds = (
        "arithmetic",
        "extraction",
        "classification",
        "json",
        "facts",
        "language",
        "missing-information",
        "tools",
    )
    assert all(tags[kind] >= 7 for kind in kinds)
    questions = Counter(json.dumps([case.messages, dict(case.settings)]) for case in SUITE.cases)
    assert max(questions.values()) == 1


@pytest.mark.parametrize("case", SUITE.cases, ids=lambda case: case.id)
def test_the_right_answer_passes_and_a_wrong_one_fails(case: Case) -> None:
    score = scored(case, right(case))
    assert (score.value, score.passed) == (1.0, True), score.reasons
    wrong = scored(case, WRONG)
    assert wrong.passed is False
    assert wrong.value is not None
    assert wrong.value <= 0.5
    assert scored(case, Answer("")).passed is False


def test_answers_of_other_cases_seldom_pass() -> None:
    """What decides is the question, not that something was said."""
    plain = [case for case in SUITE.cases if isinstance(case.expected, str)]
    passes = sum(
        scored(case, right(other)).passed is True for case in plain for other in plain if other is not case
    )
    assert passes / (len(plain) * (len(plain) - 1)) < 0.03
