"""Scorers of JSON and of tool calls, and hostile answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.judging import judged

from serve_app.evaluation import Answer, ScoreError

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
HOSTILE = {
    "deep array": "[" * 100_000,
    "closed deep array": "[" * 50_000 + "]" * 50_000,
    "deep object": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "not a number": '{"name": "a", "age": NaN}',
    "infinite": '{"name": "a", "age": 1e999}',
    "many digits": '{"name": "a", "age": ' + "9" * 100_000 + "}",
    "a key twice": '{"name": "a", "name": "b", "age": 1}',
    "a long key twice": json.dumps({"k" * 300_000: 1})[:-1] + f', "{"k" * 300_000}": 2}}',
    "a long key": json.dumps({"k" * 300_000: []}),
    "many keys twice": "{" + '"a": 1, ' * 60_000 + '"b": 1}',
    "deep but readable": "[" * 500 + "]" * 500,
    "long": json.dumps(["x" * 1000] * 2000),
    "lone surrogate": '{"name": "\\ud800", "age": -1}',
    "nothing": "",
    "prose": "Sure! Here is your JSON.",
    "null byte": "\0",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("extract", [False, True])
def test_hostile_answers_fail_and_nothing_else(name: str, extract: bool) -> None:
    score = judged("json-schema", HOSTILE[name], schema=PERSON, extract=extract)
    assert (score.passed, score.value) == (False, 0.0)
    assert len(score.reason) < 400
    assert not judged("json-equal", HOSTILE[name], value={"name": "a", "age": 1}, extract=extract).passed


@pytest.mark.parametrize(
    ("text", "extract", "passes"),
    [
        ('{"name": "Ada", "age": 36}', False, True),
        ('{"name": "Ada", "age": 36.0}', False, True),
        ('{"name": "Ada", "age": true}', False, False),
        ('{"name": "Ada"}', False, False),
        ('```json\n{"name": "Ada", "age": 36}\n```', False, False),
        ('Here:\n```json\n{"name": "Ada", "age": 36}\n```\nDone.', True, True),
        ('It is {"name": "Ada", "age": 36}, I think.', True, True),
        ("It is {not JSON}", True, False),
    ],
)
def test_json_schema(text: str, extract: bool, passes: bool) -> None:
    assert judged("json-schema", text, schema=PERSON, extract=extract).passed is passes


def test_patterns_in_a_schema_are_bounded_too() -> None:
    """jsonschema uses Python's own expressions, which have no bound."""
    hostile = json.dumps("a" * 200 + "!")
    with pytest.raises(ScoreError, match="took longer"):
        judged("json-schema", hostile, schema={"pattern": "^(a|a|aa)+$"})
    schema = {"patternProperties": {"^(a|a|aa)+$": False}}
    with pytest.raises(ScoreError, match="took longer"):
        judged("json-schema", json.dumps({"a" * 200 + "!": 1}), schema=schema)
    assert judged(
        "json-schema", '{"x1": 2}', schema={"patternProperties": {"^x": {"type": "integer"}}}
    ).passed
    assert not judged("json-schema", '{"x1": ""}', schema={"patternProperties": {"^x": False}}).passed


def test_finding_twins_among_many_values_takes_no_square() -> None:
    many = json.dumps([{"a": number} for number in range(40_000)])
    assert judged("json-schema", many, schema={"uniqueItems": True}).passed
    assert not judged("json-schema", "[1, 1.0]", schema={"uniqueItems": True}).passed
    assert judged("json-schema", "[1, true, [1], [true]]", schema={"uniqueItems": True}).passed


def test_a_schema_is_checked_and_refers_to_nothing_outside() -> None:
    with pytest.raises(ValueError, match="no JSON schema"):
        judged("json-schema", "1", schema={"type": 3})
    for away in ("http://127.0.0.1:9/x.json", "file:///etc/passwd", "#/nowhere"):
        with pytest.raises(ScoreError, match="not in it"):
            judged("json-schema", "1", schema={"$ref": away})
    within = {"$ref": "#/$defs/whole", "$defs": {"whole": {"type": "integer"}}}
    assert judged("json-schema", "1", schema=within).passed


@pytest.mark.parametrize(
    ("wanted", "said", "subset", "passes"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1.0}, False, True),
        ({"a": 1}, {"a": 1, "b": 2}, False, False),
        ({"a": 1}, {"a": 1, "b": 2}, True, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, True, True),
        ({"a": 1}, {"a": True}, False, False),
        ([1, 2], [2, 1], False, False),
        ([1], [1, 2], True, False),
        (None, {}, False, False),
    ],
)
def test_json_equal(wanted: Any, said: Any, subset: bool, passes: bool) -> None:
    if wanted is not None:
        assert judged("json-equal", json.dumps(said), value=wanted, subset=subset).passed is passes
        assert judged("json-equal", json.dumps(said), expected=wanted, subset=subset).passed is passes


def calls(*given: tuple[str, Any]) -> Answer:
    return Answer(
        tool_calls=tuple(
            {"function": {"name": name, "arguments": said if isinstance(said, str) else json.dumps(said)}}
            for name, said in given
        )
    )


WEATHER, CLOCK = {"name": "weather", "arguments": {"city": "Rome"}}, {"name": "clock"}


@pytest.mark.parametrize(
    ("answer", "options", "value"),
    [
        (calls(("weather", {"city": "Rome"}), ("clock", {"zone": 1})), {}, 1.0),
        (calls(("clock", {}), ("weather", {"city": "Rome"})), {}, 1.0),
        (calls(("clock", {}), ("weather", {"city": "Rome"})), {"ordered": True}, 0.5),
        (calls(("weather", {"city": "Rome"})), {}, 0.5),
        (calls(("weather", {"city": "Oslo"}), ("clock", {})), {}, 0.5),
        (calls(("weather", {"city": "Rome", "unit": "C"}), ("clock", {})), {}, 0.5),
        (calls(("weather", {"city": "Rome", "unit": "C"}), ("clock", {})), {"arguments": "subset"}, 1.0),
        (calls(("weather", {"city": "Rome"}), ("clock", {}), ("clock", {})), {}, 2 / 3),
        (calls(("weather", {"city": "Rome"}), ("clock", {}), ("clock", {})), {"extra": True}, 1.0),
        (calls(("weather", '{"city": "Rome"'), ("clock", "not JSON")), {}, 0.5),
        (calls(("weather", "[" * 100_000), ("clock", {})), {}, 0.0),
        (Answer("I cannot call tools."), {}, 0.0),
        (Answer(tool_calls=({}, {"function": 3}, {"function": {"name": ["weather"]}})), {}, 0.0),  # type: ignore[arg-type]
        (calls(*[("clock", {})] * 5000), {"extra": True}, 0.5),
    ],
)
def test_tool_calls(answer: Answer, options: dict[str, Any], value: float) -> None:
    score = judged("tool-calls", answer, value=[WEATHER, CLOCK], **options)
    assert score.value == pytest.approx(value)
    assert score.passed is (value == 1)


def test_no_call_can_be_what_is_wanted() -> None:
    assert judged("tool-calls", "It is noon.", value=[]).passed
    assert judged("tool-calls", calls(("clock", {})), value=[]).value == 0


def test_each_wanted_call_gets_a_call_of_its_own_where_a_greedy_choice_would_not() -> None:
    wanted = [{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"a": 1}}]
    said = calls(("f", {"a": 1}), ("f", {"b": 1}))
    assert judged("tool-calls", said, value=wanted, arguments="subset").passed


@pytest.mark.parametrize(
    "wanted", ["f", [{"arguments": {}}], [{"name": "f", "args": {}}], [{"name": "f", "arguments": 3}]]
)
def test_wrong_calls_in_a_suite_are_refused(wanted: object) -> None:
    with pytest.raises(ValueError, match="call 0"):
        judged("tool-calls", "", value=wanted)
