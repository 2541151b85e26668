"""Files of prompts: what is read, what is refused, and what stays when a file breaks."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import BadRequest, SettingsError
from serve_app.prompts import Library, Reference, Resolved, placed
from serve_app.prompts.labels import KEPT, Labels
from serve_app.prompts.library import library_of

REPLY = b"""---
description: how support answers
variables: {name: null, tone: friendly}
---
You answer {{ name }} in a {{tone}} way. Say {{name}}.
"""
CHATTY = b"""variables: [topic]
messages:
  - {role: system, content: Be short.}
  - {role: user, content: "What is {{topic}}?"}
"""
LABELS = b'labels: {reply: {production: "1", next: 2}}'
FILES = {"reply/1.md": REPLY, "reply/2.md": b"Be brief.", "chatty/a.yaml": CHATTY, "labels.yaml": LABELS}


def resolved(library: Library, tenant: str = "t", most: int = 1000, **reference: Any) -> Resolved:
    return library.resolved(Reference.of(reference), tenant, most)


def contents(prompt: Resolved) -> list[str]:
    return [message["content"] for message in prompt.messages]


def test_variables_are_filled_and_have_defaults() -> None:
    library = library_of(FILES)
    assert not library.problems
    prompt = resolved(library, id="reply", variables={"name": "Ann"})
    assert prompt.label == "reply@1"
    assert prompt.messages == ({"role": "system", "content": "You answer Ann in a friendly way. Say Ann."},)
    assert contents(resolved(library, id="reply", version="next")) == ["Be brief."]
    assert contents(resolved(library, id="chatty", version="a", variables={"topic": "a cat"})) == [
        "Be short.",
        "What is a cat?",
    ]


def test_a_value_is_text_and_no_template() -> None:
    library = library_of(FILES)
    given = {"name": "{{tone}} {{name}} {{ secret }} {name} $1 \\1", "tone": "{{name}}"}
    (content,) = contents(resolved(library, id="reply", variables=given))
    assert content == f"You answer {given['name']} in a {{{{name}}}} way. Say {given['name']}."


@pytest.mark.parametrize(
    ("reference", "param", "says"),
    [
        ({"id": "none"}, "prompt.id", "'none'"),
        ({"id": "reply", "version": "9"}, "prompt.version", "'9'"),
        ({"id": "chatty"}, "prompt.version", "production"),
        ({"id": "reply"}, "prompt.variables.name", "no value"),
        ({"id": "reply", "variables": {"name": "a", "nam": "b"}}, "prompt.variables.nam", "no variable"),
        ({"id": "reply", "variables": {"name": 3}}, "prompt.variables.name", "a text"),
        ({"id": "reply", "variables": ["name"]}, "prompt.variables", "an object"),
        ({"id": "reply", "version": 1}, "prompt.version", "a text"),
        ({"id": 7}, "prompt.id", "name of a prompt"),
        ({"id": "reply", "vars": {}}, "prompt.vars", "not known"),
        ({"id": "reply", "variables": {"name": "x" * 600}}, "prompt.variables", "at most 1000"),
    ],
)
def test_what_is_wrong_is_named(reference: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as caught:
        resolved(library_of(FILES), **reference)
    assert caught.value.param == param


def test_a_text_item_of_the_responses_api_is_a_value() -> None:
    given = {"name": {"type": "input_text", "text": "Ann"}}
    assert "Ann" in contents(resolved(library_of(FILES), id="reply", variables=given))[0]


def test_a_prompt_of_other_tenants_does_not_exist() -> None:
    library = library_of(FILES | {"reply/prompt.yaml": b"tenants: [acme]"})
    assert resolved(library, "acme", id="reply", version="2").version == "2"
    for tenant, known in (("other", "reply"), ("other", "none")):
        with pytest.raises(BadRequest, match=f"There is no prompt '{known}'"):
            resolved(library, tenant, id=known, version="2")


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "a place that is not declared": ("reply/1.md", b"Hello {{who}}", "`{{who}}`"),
    "a variable that nothing uses": ("reply/1.md", b"---\nvariables: [a]\n---\nHi", "variables.a"),
    "no second line of the front matter": ("reply/1.md", b"---\nvariables: [a]\nHi {{a}}", "second line"),
    "a key that is not known": ("reply/1.md", b"---\nvars: [a]\n---\nHi", "vars: unknown key"),
    "a role that is not known": ("reply/1.md", b"---\nrole: boss\n---\nHi", "'boss'"),
    "a default that is no text": ("reply/1.md", b"---\nvariables: {a: 1}\n---\n{{a}}", "variables.a = 1"),
    "no text": ("reply/1.md", b"", "not empty"),
    "no UTF-8": ("reply/1.md", b"\xff\xfe", "UTF-8"),
    "no YAML": ("reply/1.yaml", b"messages: [", "reply/1.yaml:1: no valid YAML"),
    "a list": ("reply/1.yaml", b"- a", "`key: value`"),
    "no messages": ("reply/1.yaml", b"variables: []", "messages"),
    "a message with more": (
        "reply/1.yaml",
        b"messages: [{role: user, content: hi, name: a}]",
        "messages[0]",
    ),
    "tenants that are no list": ("reply/prompt.yaml", b"tenants: acme", "tenants"),
    "a file of tenants that is being written": ("reply/prompt.yaml", b"", "not empty"),
    "a version with two files": ("reply/1.yaml", b"messages: [{role: user, content: a}]", "two files"),
    "a name that is none": ("reply/a b.md", b"Hi", "reply/a b.md"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_and_leaves_what_was_known(case: str) -> None:
    path, content, says = BROKEN[case]
    before = library_of(FILES)
    files = {"reply/0.md": b"Old."} | FILES if case == "a version with two files" else dict(FILES)
    if path == "reply/1.yaml" and case != "a version with two files":
        del files["reply/1.md"]
    broken = library_of({**files, path: content}, before)
    assert any(says in problem for problem in broken.problems), broken.problems
    assert broken.prompts["reply"] is before.prompts["reply"]
    assert broken.prompts["chatty"].versions
    alone = library_of({**files, path: content})
    assert "reply" not in alone.prompts
    assert "chatty" in alone.prompts


@pytest.mark.parametrize(
    "content",
    [b"", b"labels: [", b"labels: {reply: 1}", b"label: {}", b"labels: {reply: {production: 1.10}}", b"- a"],
)
def test_broken_labels_leave_those_that_were_known(content: bytes) -> None:
    before = library_of(FILES)
    broken = library_of(FILES | {"labels.yaml": content}, before)
    assert broken.problems
    assert broken.labels == before.labels
    mended = library_of(FILES, broken)
    assert not mended.problems


def test_a_label_without_its_version_is_a_problem_of_its_own() -> None:
    library = library_of(FILES | {"labels.yaml": b'labels: {reply: {production: "7", next: "2"}}'})
    assert library.problems == ("labels.yaml: labels.reply.production: there is no version '7'",)
    assert resolved(library, id="reply", version="next").version == "2"


def test_an_edited_version_has_another_mark() -> None:
    one, two = (library_of({"p/1.md": text}) for text in (b"Be brief.", b"Be very brief."))
    assert resolved(one, id="p", version="1").mark != resolved(two, id="p", version="1").mark


def test_rolling_back_goes_step_by_step_to_what_was_promoted_before() -> None:
    labels = Labels()
    for version in ("1", "2", "2", "3"):
        labels = labels.promoted("p", "production", version, "2026-11-23T17:00:00Z")
    labels = Labels.read(labels.written(), "labels.yaml")
    for expected in ("2", "1"):
        labels = labels.rolled_back("p", "production")
        assert labels.of("p") == {"production": expected}
    with pytest.raises(SettingsError, match="no former version"):
        labels.rolled_back("p", "production")


def test_history_is_bounded() -> None:
    labels = Labels()
    for version in range(3 * KEPT):
        labels = labels.promoted("p", "production", str(version), "now")
    assert len(labels.history["p", "production"]) == KEPT


def test_instructions_that_meet_become_one_message() -> None:
    prompt = resolved(library_of(FILES), id="reply", version="2")
    own = [{"role": "system", "content": "Use English."}, {"role": "user", "content": "hi"}]
    assert placed(prompt, own) == [{"role": "system", "content": "Be brief.\n\nUse English."}, own[1]]
    named = [{"role": "system", "content": "Use English.", "name": "x"}]
    assert len(placed(prompt, named)) == 2
    assert prompt.messages[0]["content"] == "Be brief."
