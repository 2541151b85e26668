"""Files of other tools: what is read, and what says by name that it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import SuiteError
from serve_app.evaluation.formats.promptfoo_asserts import KINDS
from serve_app.evaluation.suite import Suite, load_suite


def loaded(folder: Path, name: str, text: str | list[Any], **options: Any) -> Suite:
    path = folder / name
    path.write_text(text if isinstance(text, str) else "\n".join(map(json.dumps, text)), encoding="utf-8")
    return load_suite(path, **options)


def refused(folder: Path, name: str, text: str | list[Any]) -> str:
    with pytest.raises(SuiteError) as error:
        loaded(folder, name, text)
    return str(error.value).replace(f"{folder}/", "")


PROMPTFOO = """\
description: Sailor talk
providers: [openai:some-model]
prompts:
  - "Say this like a sailor: {{body}}"
  - '[{"role": "system", "content": "You are a {{ who }}."}, {"role": "user", "content": "{{body}}"}]'
defaultTest:
  vars: {who: sailor}
  assert:
    - type: not-contains
      value: As an AI
assertionTemplates:
  sea: {type: icontains, value: sea}
tests:
  - description: hunger
    vars:
      body: [I am hungry., I am thirsty.]
    assert:
      - {type: icontains-any, value: "grub, {{who}}"}
      - $ref: '#/assertionTemplates/sea'
  - vars: {body: Yes}
    assert:
      - {type: equals, value: Aye, weight: 2}
      - {type: is-json, value: {type: object}}
      - {type: similar, value: Ahoy}
      - {type: llm-rubric, value: Is about the sea}
"""


def test_promptfoo(tmp_path: Path) -> None:
    suite = loaded(tmp_path, "promptfooconfig.yaml", PROMPTFOO)
    assert suite.name == "Sailor talk"
    assert [case.id for case in suite.cases] == [
        *("hunger / 1", "hunger / 2", "hunger / 3", "hunger / 4"),
        *("test-2 / 1", "test-2 / 2"),
    ]
    assert [case.question for case in suite.cases[:4]] == [
        "Say this like a sailor: I am hungry.",
        "Say this like a sailor: I am thirsty.",
        "I am hungry.",
        "I am thirsty.",
    ]
    assert suite.cases[2].messages[0] == {"role": "system", "content": "You are a sailor."}
    first = [(each.scorer, dict(each.options)) for each in suite.cases[0].assertions]
    assert first == [
        ("not-contains", {"value": "As an AI"}),
        ("contains", {"value": ["grub", "sailor"], "ignore_case": True, "any": True}),
        ("contains", {"value": "sea", "ignore_case": True}),
    ]
    second = suite.cases[4].assertions
    assert [each.scorer for each in second] == ["not-contains", "exact", "json-schema", "similar", "judge"]
    assert second[1].weight == 2
    assert second[3].options["threshold"] == 0.75
    assert suite.cases[0].origin.endswith("promptfooconfig.yaml:14")


def test_promptfoo_with_prompts_and_tests_in_files(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("Translate: {{text}}\n---\nIn French: {{text}}\n")
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "{{text}}"}]')
    (tmp_path / "tests.csv").write_text('text,__expected\nwater,contains: eau\n"bread, please",pain\n')
    text = "prompts: [file://prompts.txt, file://chat.json]\nproviders: x\ntests: file://tests.csv\n"
    suite = loaded(tmp_path, "config.yaml", text)
    assert [case.question for case in suite.cases] == [
        *("Translate: water", "In French: water", "water"),
        *("Translate: bread, please", "In French: bread, please", "bread, please"),
    ]
    assert suite.cases[0].assertions[0].options["value"] == "eau"
    assert suite.cases[5].assertions[0].scorer == "exact"


TEST = "prompts: ['{{a}}']\ntests:\n  - vars: {a: b}\n    assert:\n      - "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            TEST + "{type: javascript, value: output.length}",
            "config.yaml:5: tests[0].assert[0]: type 'javascript' is not read",
        ),
        (TEST + "{type: latency, threshold: 100}", "type 'latency' is not read"),
        (TEST + "{type: python, value: 'len(output)'}", "type 'python' is not read"),
        (TEST + "{type: equals}", "tests[0].assert[0]: value: missing"),
        (TEST + "{type: equals, value: a, threshold: 1}", "threshold: is not read"),
        (TEST + "{type: equals, value: a, transform: x}", "transform: is not read"),
        (TEST + "{type: equals, value: '{{c}}'}", "the variable 'c' is not given"),
        (TEST + "{type: is-json, value: 'file://x.json'}", "expected a JSON schema in the file itself"),
        (TEST + "{$ref: '#/assertionTemplates/x'}", "there is no '#/assertionTemplates/x'"),
        (TEST + "5", "expected an assertion with `type`"),
        (TEST + "{type: similar, value: a, threshold: [1]}", "threshold: expected a number"),
        (TEST + "{type: equals, value: a, weight: {}}", "weight: expected a number"),
        (
            "prompts: ['{{a | upper}}']\ntests: [{vars: {a: b}, assert: [{type: is-json}]}]",
            "templates with logic are not read",
        ),
        (
            "prompts: ['{% if a %}']\ntests: [{vars: {a: b}, assert: [{type: is-json}]}]",
            "templates with logic are not read",
        ),
        ("prompts: [a]\ntests: [{vars: {a: b}}]", "config.yaml:2: tests[0]: assert: missing"),
        (
            "prompts: [a]\ntests: [{threshold: 1, assert: [{type: is-json}]}]",
            "tests[0].threshold: is not read",
        ),
        (
            "prompts: [a]\ntests: [{options: {transform: x}, assert: [{type: is-json}]}]",
            "options.transform: is not read",
        ),
        ("prompts: [a]\ntests: []\nscenarios: [1]", "config.yaml:3: scenarios: is not read"),
        ("prompts: [file://no.txt]\ntests: []", "prompts[0]: "),
        ("prompts: [file://no.py]\ntests: []", "prompts in .py files are not read"),
        ("prompts: [a]\ntests: file://tests.js", "tests in .js files are not read"),
        ("prompts: [a]\ntests: 3", "tests: expected a list of tests"),
        ("prompts: [3]\ntests: [4]", "prompts[0]: expected text or a file"),
        ("prompts: [a]\ntests: []", "there is no case"),
    ],
)
def test_what_promptfoo_can_and_this_cannot_is_named(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, "config.yaml", text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_assertion_that_is_named_becomes_one_that_exists(tmp_path: Path, kind: str) -> None:
    value = {"type": "object"} if kind.endswith("json") else "a,b"
    text = json.dumps({"prompts": ["a"], "tests": [{"assert": [{"type": kind, "value": value}]}]})
    assert len(loaded(tmp_path, "config.json", text).cases[0].assertions) == 1


def test_promptfoo_does_not_multiply_without_end(tmp_path: Path) -> None:
    values = {f"v{number}": list(range(100)) for number in range(6)}
    text = json.dumps(
        {"prompts": ["a"], "tests": [{"vars": values, "assert": [{"type": "equals", "value": 1}]}]}
    )
    assert "more than 100000 cases" in refused(tmp_path, "config.json", text)


def test_openai_evals(tmp_path: Path) -> None:
    samples: list[Any] = [
        {
            "input": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": "1 + 1 = {{x}}"},
            ],
            "ideal": "2",
        },
        {"input": "Once upon a", "ideal": ["time", "(time)"], "comment": "x"},
    ]
    suite = loaded(tmp_path, "samples.jsonl", samples)
    assert [case.id for case in suite.cases] == ["sample-1", "sample-2"]
    assert suite.cases[0].question == "1 + 1 = {{x}}"
    assert suite.cases[1].expected == ["time", "(time)"]
    assert suite.cases[1].assertions[0].options["pattern"] == r"\A\s*(?:time|\(time\))"
    assert suite.cases[1].origin.endswith("samples.jsonl:2")
    graded = [samples[0], {"input": "x", "choice": "Yes"}]
    assert "samples.jsonl:2: [1]: ideal: expected text" in refused(tmp_path, "samples.jsonl", graded)
    assert "samples.jsonl:1: [0]: input: expected" in refused(
        tmp_path, "samples.jsonl", [{"input": 3, "ideal": "a"}]
    )


GOLDENS: list[dict[str, Any]] = [
    {
        "input": "How long may I return shoes?",
        "expected_output": "30 days.",
        "context": ["Shoes: 30 days.", "Hats: 9."],
    },
    {"input": "Cancel order 7.", "expectedTools": [{"name": "cancel", "inputParameters": {"order": 7}}]},
]


def test_deepeval(tmp_path: Path) -> None:
    for text in (json.dumps(GOLDENS), json.dumps({"goldens": GOLDENS, "conversational_goldens": []})):
        suite = loaded(tmp_path, "goldens.json", text)
        returns, cancel = suite.cases
        assert returns.expected == "30 days."
        assert returns.variables["context"] == "Shoes: 30 days.\n\nHats: 9."
        assert [each.scorer for each in returns.assertions] == ["judge"]
        assert cancel.assertions[0].options["value"] == [{"name": "cancel", "arguments": {"order": 7}}]
    table = 'input,expected_output,expected_tools\nHi,Hello,"[{""name"": ""greet""}]"\nBye,Ciao,\n'
    suite = loaded(tmp_path, "goldens.csv", table)
    assert [[each.scorer for each in case.assertions] for case in suite.cases] == [
        ["tool-calls", "judge"],
        ["judge"],
    ]
    assert suite.cases[1].origin.endswith("goldens.csv:3")


@pytest.mark.parametrize(
    ("golden", "says"),
    [
        ({"scenario": "A guest is angry.", "turns": []}, "goldens of whole conversations"),
        ({"input": "a", "actual_output": "b"}, "expected_output: missing"),
        ({"input": "", "expected_output": "b"}, "input: expected text"),
        ({"input": "a", "expected_tools": [{"title": "b"}]}, "expected_tools: expected a list of tools"),
    ],
)
def test_goldens_that_are_not_read(tmp_path: Path, golden: dict[str, Any], says: str) -> None:
    assert says in refused(tmp_path, "goldens.json", json.dumps([golden]))


def test_ragas_new_and_old(tmp_path: Path) -> None:
    new = {"user_input": "Who?", "response": "x", "reference": "Ada", "retrieved_contexts": ["one", "two"]}
    suite = loaded(tmp_path, "new.jsonl", [new, {"user_input": "Whom?", "reference": "Bo"}])
    assert [case.expected for case in suite.cases] == ["Ada", "Bo"]
    assert suite.cases[0].variables == {"question": "Who?", "context": "one\n\ntwo"}
    assert suite.cases[0].assertions[0].scorer == "judge"
    old = {"question": "Who?", "answer": "x", "contexts": ["one"], "ground_truths": ["Ada", "Ada L."]}
    suite = loaded(tmp_path, "old.json", json.dumps([old]))
    assert (suite.cases[0].question, suite.cases[0].expected) == ("Who?", "Ada")
    table = "question,contexts,ground_truth\nWho?,\"['it''s', 'two']\",Ada\n"
    assert loaded(tmp_path, "old.csv", table).cases[0].variables["context"] == "its\n\ntwo"


def test_ragas_conversations_are_asked_up_to_the_last_thing_the_human_said(tmp_path: Path) -> None:
    turns = [
        {"type": "human", "content": "Weather in Rome?"},
        {"type": "ai", "content": "", "tool_calls": [{"name": "weather", "args": {"city": "Rome"}}]},
        {"type": "tool", "content": "sunny"},
        {"type": "ai", "content": "Sunny."},
        {"type": "human", "content": "And Oslo?"},
        {"type": "ai", "content": "Rain."},
    ]
    calls = [{"name": "weather", "args": {"city": "Oslo"}}]
    suite = loaded(tmp_path, "turns.jsonl", [{"user_input": turns, "reference_tool_calls": calls}])
    messages = suite.cases[0].messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert suite.cases[0].assertions[0].options["value"] == [
        {"name": "weather", "arguments": {"city": "Oslo"}}
    ]


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ({"user_input": "a", "response": "b"}, "reference: missing"),
        (
            {"user_input": [{"type": "robot", "content": "a"}], "reference": "b"},
            "user_input: expected text, or messages",
        ),
        ({"user_input": [], "reference": "b"}, "user_input: expected text, or messages"),
        ({"user_input": [{"type": ["ai"], "content": "a"}], "reference": "b"}, "user_input: expected text"),
        (
            {"user_input": [{"type": "ai", "content": "a", "tool_calls": 5}], "reference": "b"},
            "user_input: expected",
        ),
        (
            {"user_input": "a", "reference_tool_calls": [{"name": "b"}]},
            "reference_tool_calls: expected a list",
        ),
    ],
)
def test_ragas_samples_that_are_not_read(tmp_path: Path, sample: dict[str, Any], says: str) -> None:
    assert says in refused(tmp_path, "samples.jsonl", [sample])


def test_other_assertions_may_stand_in_for_those_of_a_format(tmp_path: Path) -> None:
    samples = [{"user_input": "Who?", "reference": "Ada"}]
    suite = loaded(tmp_path, "a.jsonl", samples, assertions=[{"scorer": "contains", "ignore_case": True}])
    assert [each.scorer for each in suite.cases[0].assertions] == ["contains"]
    with pytest.raises(SuiteError, match="unknown scorer 'nose'"):
        loaded(tmp_path, "a.jsonl", samples, assertions=["nose"])


def test_tables_that_are_wrong_name_their_line(tmp_path: Path) -> None:
    assert "a.csv:3: more cells" in refused(tmp_path, "a.csv", "user_input,reference\na,b\nc,d,e\n")
    assert "a.csv:1: 'input': two columns" in refused(tmp_path, "a.csv", "input,input\na,b\n")
    assert "no case of a known format" in refused(tmp_path, "a.csv", "colour,shape\nred,round\n")
