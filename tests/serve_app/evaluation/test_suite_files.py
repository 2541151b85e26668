"""Suites as files: what is read, and where a wrong one is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve_app.errors import SuiteError
from serve_app.evaluation.suite import Suite, load_suite

GOOD = """\
name: greetings
description: How to say hello.
defaults:
  system: One word.
  settings: {max_tokens: 8, temperature: 0}
  tags: [small]
cases:
  - id: hello-de
    prompt: "Say hello in {{language}}, {{ times }} times."
    variables: {language: German, times: 2}
    expected: Hallo
    tags: [language, small]
    settings: {max_tokens: 4}
  - id: yes
    messages:
      - {role: user, content: [{type: text, text: "Yes or no?"}]}
    expected: yes
    assertions:
      - contains
      - {scorer: regex, pattern: "^y", weight: 2}
  - id: braces
    prompt: "What is {{ this }}?"
    template: false
    assertions: []
"""


def written(folder: Path, text: str, name: str = "suite.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str, name: str = "suite.yaml") -> Suite:
    return load_suite(written(folder, text, name))


def refused(folder: Path, text: str, name: str = "suite.yaml") -> str:
    """What is said of a wrong suite, without the folder."""
    with pytest.raises(SuiteError) as error:
        loaded(folder, text, name)
    return str(error.value).replace(f"{folder}/", "")


def test_a_suite_with_defaults_variables_and_both_forms_of_messages(tmp_path: Path) -> None:
    suite = loaded(tmp_path, GOOD)
    assert (suite.name, suite.description) == ("greetings", "How to say hello.")
    hello, yes, braces = suite.cases
    assert hello.messages == (
        {"role": "system", "content": "One word."},
        {"role": "user", "content": "Say hello in German, 2 times."},
    )
    assert hello.variables == {"language": "German", "times": "2"}
    assert hello.settings == {"max_tokens": 4, "temperature": 0}
    assert hello.tags == ("small", "language")
    assert [each.scorer for each in hello.assertions] == ["exact"]
    assert hello.origin == f"{tmp_path}/suite.yaml:8"
    assert (yes.id, yes.expected) == ("yes", "yes")
    assert [(each.scorer, dict(each.options), each.weight) for each in yes.assertions] == [
        ("contains", {}, 1.0),
        ("regex", {"pattern": "^y"}, 2.0),
    ]
    assert braces.question == "What is {{ this }}?"
    assert braces.assertions == ()


def test_json_lines_with_and_without_a_head(tmp_path: Path) -> None:
    head = {"name": "n", "defaults": {"settings": {"max_tokens": 3}}}
    cases = [{"id": str(number), "prompt": "1?", "expected": "1"} for number in range(3)]
    text = "\n\n".join(json.dumps(each) for each in cases)
    assert [case.id for case in loaded(tmp_path, text, "a.jsonl").cases] == ["0", "1", "2"]
    suite = loaded(tmp_path, f"{json.dumps(head)}\n{text}", "b.jsonl")
    assert (suite.name, len(suite.cases)) == ("n", 3)
    assert suite.cases[2].settings == {"max_tokens": 3}
    assert suite.cases[2].origin.endswith("b.jsonl:6")


def test_variables_alone_are_for_a_target_that_brings_the_prompt(tmp_path: Path) -> None:
    suite = loaded(tmp_path, "cases: [{id: a, variables: {x: true}, expected: b}]")
    assert suite.cases[0].messages == ()
    assert suite.cases[0].variables == {"x": "true"}


def test_defaults_may_bring_prompt_variables_and_assertions(tmp_path: Path) -> None:
    text = """
defaults:
  prompt: "{{a}} + {{b}}?"
  variables: {b: 2}
  assertions: [numeric]
cases:
  - {id: one, variables: {a: 1}, expected: 3}
  - {id: two, variables: {a: 2, b: 5}, expected: "{{a}}7"}
"""
    one, two = loaded(tmp_path, text).cases
    assert (one.question, two.question) == ("1 + 2?", "2 + 5?")
    assert two.expected == "27"
    assert one.assertions[0].scorer == "numeric"


WRONG: list[tuple[str, str]] = [
    ("", "suite.yaml"),
    ("cases: []", "suite.yaml:1: cases: there is no case"),
    ("- 1", "there is no case of a known format"),
    ("name: a", "suite.yaml:1: cases: missing"),
    ("cases: 3", "suite.yaml:1: cases: expected a valid list"),
    ("cases:\n  - 3", "suite.yaml:2: cases[0]: expected a mapping, got 3"),
    ("cases:\n  - prompt: a\n    expected: b", "suite.yaml:2: cases[0].id: missing"),
    (
        "cases:\n  - id: 3\n    prompt: a\n    expected: b",
        "suite.yaml:2: cases[0].id: expected a valid string, got 3",
    ),
    (
        "cases:\n  - id: a\n    promt: b",
        "suite.yaml:3: cases[0].promt: unknown field; did you mean 'prompt'?",
    ),
    (
        "defaults:\n  sistem: x\ncases: [{id: a}]",
        "suite.yaml:2: defaults.sistem: unknown field; did you mean 'system'?",
    ),
    ("case: []\ncases: [{id: a}]", "suite.yaml:1: case: unknown field; did you mean 'cases'?"),
    (
        "cases:\n  - id: a\n    expected: b",
        "suite.yaml:2: cases[0]: expected `prompt`, `messages`, or `variables`",
    ),
    ("cases:\n  - id: a\n    prompt: b", "suite.yaml:2: cases[0]: nothing decides"),
    (
        "cases:\n  - {id: a, prompt: b, expected: c}\n  - {id: a, prompt: d, expected: e}",
        "suite.yaml:3: cases[1].id: 'a' is already the id of the case at suite.yaml:2",
    ),
    (
        "cases:\n- id: a\n  prompt: '{{x}}'\n  expected: b",
        "suite.yaml:2: cases[0].messages[0].content: the variable 'x'",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  messages: []\n  expected: b",
        "suite.yaml:4: cases[0].messages: expected `prompt` or",
    ),
    (
        "cases:\n- id: a\n  messages: []\n  expected: b",
        "suite.yaml:3: cases[0].messages: there is no message",
    ),
    (
        "cases:\n- id: a\n  messages:\n  - {role: [user]}\n  expected: b",
        "suite.yaml:4: cases[0].messages[0].role: expected one of",
    ),
    (
        "cases:\n- id: a\n  messages:\n  - {role: boss}\n  expected: b",
        "suite.yaml:4: cases[0].messages[0].role: expected one of",
    ),
    (
        "cases:\n- id: a\n  messages:\n  - {role: user}\n  expected: b",
        "suite.yaml:4: cases[0].messages[0].content: expected text",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  expected: c\n  settings:\n    model: d",
        "suite.yaml:6: cases[0].settings.model: the target",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  variables: {x: [1]}\n  expected: c",
        "suite.yaml:4: cases[0].variables.x: expected text",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  assertions: [nose]",
        "suite.yaml:4: cases[0].assertions[0]: unknown scorer 'nose'",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  assertions: [{weight: 1}]",
        "suite.yaml:4: cases[0].assertions[0].scorer: missing",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  assertions:\n  - scorer: regex\n    pattern: a\n    pattren: b",
        "suite.yaml:7: cases[0].assertions[0].pattren: unknown field; did you mean 'pattern'?",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  assertions: [{scorer: regex, pattern: '('}]",
        "assertions[0]: '(' is no regular",
    ),
    (
        "cases:\n- id: a\n  prompt: b\n  assertions: [{scorer: exact, weight: 0}]",
        "weight: expected greater than 0, got 0",
    ),
    ("cases:\n- id: a\n  id: b", "suite.yaml:3: cases[0].id: this key stands twice"),
    ("cases:\n- id: a\n  prompt: [", "suite.yaml:3: not YAML"),
    (
        "cases: !!python/object/apply:os.system ['true']",
        "suite.yaml:1: cases: the tag 'tag:yaml.org,2002:python",
    ),
    ("a: &a {x: 1}\ncases: [{<<: *a}]", "merges (`<<`) are not read"),
    ("cases: &a [*a]", "nested deeper than 64 levels"),
    ("cases: " + "[" * 5_000, "suite.yaml: nested too deeply"),
    ("cases: [{id: a, prompt: b, expected: " + "9" * 5000 + "}]", "suite.yaml:1: cases[0].expected: "),
    ("cases: [{id: a, prompt: b, expected: 1e999}]", "suite.yaml:1: cases[0].expected: 1e999 is too large"),
    ("a: 1\n---\nb: 2", "suite.yaml:2: not YAML"),
    ("cases: [\x07]", "suite.yaml: not YAML"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_a_wrong_suite_names_file_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


def test_aliases_that_stand_for_billions_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    assert "aliases written out" in refused(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}\n{", "suite.jsonl:2: not JSON"),
        ('\n{"id": "a", "prompt": "b", "expected": NaN}', "suite.jsonl:2: not JSON: NaN is no number"),
        ('{"id": "a", "id": "b"}', "suite.jsonl:1: not JSON: the key 'id' stands twice"),
        (
            '{"id": "a", "prompt": "b", "expected": "c"}\n\n{"id": "d", "promt": 1}',
            "suite.jsonl:3: cases[1].promt: unknown",
        ),
        ("[" * 100_000, "suite.jsonl:1: "),
        ("", "suite.jsonl"),
    ],
)
def test_wrong_json_lines_name_their_line(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text, "suite.jsonl")


def test_many_problems_are_told_at_once_but_not_all(tmp_path: Path) -> None:
    told = refused(tmp_path, "cases:\n" + "- {id: a}\n" * 100)
    assert len(told.splitlines()) == 21
    assert "more" in told.splitlines()[-1]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="No such file"):
        load_suite(tmp_path / "absent.yaml")
    with pytest.raises(SuiteError, match="expected a file that ends with"):
        load_suite(tmp_path / "suite.txt")
    with pytest.raises(SuiteError, match="unknown format 'nose'"):
        load_suite(written(tmp_path, GOOD), "nose")
    (tmp_path / "latin.yaml").write_bytes(b"cases: \xff")
    with pytest.raises(SuiteError, match="latin"):
        load_suite(tmp_path / "latin.yaml")


def test_a_function_beside_the_suite_is_found(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def good(case, answer): return True\n")
    text = "cases: [{id: a, prompt: b, assertions: [{scorer: python, function: 'own.py:good'}]}]"
    assert loaded(tmp_path, text).cases[0].assertions[0].options["function"] == f"{tmp_path}/own.py:good"
    assert "has no function 'bad'" in refused(tmp_path, text.replace(":good", ":bad"))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        *("id", "prompt", "messages", "expected", "assertions", "tags", "settings", "variables", "system"),
        *("role", "content", "scorer", "weight", "pattern", "schema", "value", "name", "defaults", "cases"),
        *("template", "function"),
    ]
)
SCORER_NAMES = st.sampled_from(
    ["exact", "regex", "json-schema", "numeric", "tool-calls", "judge", "python", "similar"]
)
SHAPED = st.recursive(
    JSON_VALUES | SCORER_NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=20,
)
FUZZ = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def is_read_or_refused(path: Path) -> None:
    """Read with a case at least, or refused with the file's name; nothing else."""
    try:
        told = "" if load_suite(path).cases else "read without a case"
    except SuiteError as error:
        told = str(error)
    assert not told or told.startswith(str(path))


@FUZZ
@given(text=st.text(max_size=300))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    for suffix in ("yaml", "json", "jsonl", "csv"):
        path = tmp_path / f"any.{suffix}"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        is_read_or_refused(path)


@FUZZ
@given(cases=st.lists(SHAPED, max_size=4), defaults=SHAPED)
def test_any_values_in_the_shape_of_a_suite_are_read_or_refused(
    tmp_path: Path, cases: Any, defaults: Any
) -> None:
    is_read_or_refused(written(tmp_path, json.dumps({"cases": cases, "defaults": defaults}), "shaped.json"))
    is_read_or_refused(written(tmp_path, "\n".join(map(json.dumps, cases)), "shaped.jsonl"))


ASSERTIONS = st.fixed_dictionaries(
    {"scorer": SCORER_NAMES},
    optional={
        "pattern": JSON_VALUES,
        "schema": JSON_VALUES,
        "value": JSON_VALUES,
        "weight": JSON_VALUES,
        "function": JSON_VALUES,
    },
)


@FUZZ
@given(assertions=st.lists(ASSERTIONS, max_size=3), expected=JSON_VALUES)
def test_any_options_of_scorers_are_read_or_refused(tmp_path: Path, assertions: Any, expected: Any) -> None:
    case = {"id": "a", "prompt": "b", "expected": expected, "assertions": assertions, "template": False}
    is_read_or_refused(written(tmp_path, json.dumps({"cases": [case]}), "options.json"))
