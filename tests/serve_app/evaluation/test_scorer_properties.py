"""Whatever a target says, a scorer gives a score or says that it cannot judge; whatever a foreign file holds,
it is read or refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.judging import FakeServices, judged

from serve_app.errors import SuiteError
from serve_app.evaluation import Answer, Assertion, Case, ScoreError
from serve_app.evaluation.formats.registry import FORMATS
from serve_app.evaluation.scorers.registry import score_case
from serve_app.evaluation.suite import load_suite

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
TEXTS = st.text(max_size=200) | VALUES.map(json.dumps)
CALLS = st.lists(st.dictionaries(st.sampled_from(["function", "id", "type"]), VALUES, max_size=3), max_size=3)
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

ASSERTIONS = (
    Assertion("exact", {"value": "a", "ignore_case": True}),
    Assertion("contains", {"value": ["a", "İ"], "words": True, "ignore_case": True}),
    Assertion("not-contains", {"value": "a"}),
    Assertion("regex", {"pattern": r"\d+\s*(?:a|b)*$"}),
    Assertion("numeric", {"value": 3, "relative": 0.1}),
    Assertion("json-schema", {"schema": {"type": "object", "uniqueItems": True}, "extract": True}),
    Assertion("json-equal", {"value": {"a": [1]}, "subset": True, "extract": True}),
    Assertion("tool-calls", {"value": [{"name": "f", "arguments": {"a": 1}}]}),
    Assertion("autoevals", {"name": "Levenshtein", "value": "a"}),
)


@FUZZ
@given(text=TEXTS, calls=CALLS)
def test_any_answer_is_scored(text: str, calls: list[dict[str, Any]]) -> None:
    case = Case("a", ({"role": "user", "content": "?"},), None, ASSERTIONS)
    scored = asyncio.run(score_case(case, Answer(text, tuple(calls)), FakeServices()))
    assert None not in scored.scores, scored.reasons
    assert scored.value is not None
    assert 0 <= scored.value <= 1
    assert all(len(reason) < 1000 for reason in scored.reasons)


@FUZZ
@given(reply=TEXTS, other=TEXTS)
def test_any_reply_of_a_judge_is_a_verdict_or_an_error(reply: str, other: str) -> None:
    for options in ({"mode": "grade"}, {"mode": "compare", "value": "theirs"}):
        try:
            value = judged("judge", "mine", services=FakeServices(reply, other), **options).value
        except ScoreError:
            continue
        assert value in (0, 0.25, 0.5, 0.75, 1)


KEYS = st.sampled_from(
    [
        *("input", "ideal", "expected_output", "expected_tools", "context", "goldens", "turns", "user_input"),
        *("reference", "retrieved_contexts", "question", "ground_truth", "contexts", "reference_tool_calls"),
        *(
            "prompts",
            "tests",
            "vars",
            "assert",
            "type",
            "value",
            "defaultTest",
            "description",
            "$ref",
            "options",
        ),
        *("content", "name", "args", "weight", "threshold", "raw", "label", "tool_calls", "role"),
    ]
)
WORDS = st.sampled_from(
    ["human", "ai", "tool", "user", "equals", "similar", "is-json", "{{a}}", "[1]", "file://x.csv", "a"]
)
ROWS = st.recursive(
    PLAIN | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


@pytest.mark.parametrize("name", FORMATS)
@FUZZ
@given(value=st.dictionaries(KEYS, ROWS, max_size=8) | st.lists(ROWS, max_size=4))
def test_any_file_of_any_format_is_read_or_refused(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(value))
    try:
        told = "" if load_suite(path, name).cases else "read without a case"
    except SuiteError as error:
        told = str(error)
    assert not told or told.startswith(str(path))
