"""Which guards hold, what they see of a request, how their verdicts are read, and their settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.errors import GuardRefused, SettingsError
from serve_app.guardrails import Check, Pass, Refuse, Replace, Stage, Text, Verdict
from serve_app.guardrails.registry import Guardrails, Subject
from serve_app.guardrails.texts import Texts, with_texts
from serve_app.guardrails.verdicts import (
    MOST_MESSAGE,
    BadVerdict,
    texts_after,
    verdict_from_json,
    verdict_from_python,
)
from serve_app.settings import Settings, parse_args
from serve_app.settings.guardrails import GuardrailSettings

PAGE = Path(__file__).parents[3] / "docs" / "guardrails.md"
CHECK = Check("g", Stage.BEFORE, "m", "t", "/v1/completions", (Text("one"), Text("two")))


def settings(*guards: Mapping[str, Any]) -> Settings:
    models = [{"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:1/v1"}], "aliases": ["nick"]}]
    return parse_args({"models": models, "guardrails": [dict(each) for each in guards]}, source="test")


def texts(value: Any) -> list[str]:
    return [each.text for each in Texts(value).found]


def test_every_text_of_a_request_is_seen_in_each_dialect() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":"x"}'}}
    fields: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "one"},
            {"role": "user", "name": "who", "content": [{"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "reasoning": "three", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "four"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": "five"}}],
        "a_new_field": {"deep": ["six"]},
    }
    seen = Texts(fields)
    assert texts(fields) == ["one", "who", "two", "three", "f", '{"a":"x"}', "four", "f", "five", "six"]
    assert [each.kind for each in seen.found if each.kind != "text"] == ["reasoning", "arguments"]
    assert [each.role for each in seen.found[:4]] == ["system", "user", "user", "assistant"]
    assert seen.unseen is None
    assert texts({"model": "m", "prompt": ["a", "b"], "suffix": "c"}) == ["a", "b", "c"]
    assert texts({"input": "a"}) == ["a"]
    assert texts({"query": "a", "documents": ["b", {"text": "c"}]}) == ["a", "b", "c"]
    source = {"type": "text", "media_type": "text/plain", "data": "a"}
    assert texts({"system": [{"type": "text", "text": "s"}], "document": {"source": source}}) == ["s", "a"]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]}, "image_url"),
        ({"messages": [{"content": [{"image_url": {"url": "data:x"}}]}]}, "image_url"),
        ({"messages": [{"content": [{"type": "image", "source": {"type": "base64"}}]}]}, "image"),
        ({"messages": [{"content": [{"type": "input_audio", "input_audio": {}}]}]}, "input_audio"),
        ({"prompt": [1, 2]}, "token ids"),
        ({"prompt": [[1, 2]]}, "token ids"),
        ({"tokens": [1]}, "token ids"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
    ],
)
def test_what_has_no_text_is_named(fields: dict[str, Any], what: str) -> None:
    assert what in (Texts(fields).unseen or "")


JOE = "joe@example.com"


def tool(parameters: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]}


PLACES_OF_TEXTS: tuple[dict[str, Any], ...] = (
    tool({"properties": {"user": {"description": JOE}}}),
    tool({"properties": {"type": {"type": "string", "format": JOE}}}),
    tool({"properties": {"a": {"type": JOE}}}),
    tool({"properties": {"file": {"enum": ["x", JOE]}}}),
    tool({"properties": {JOE: {"type": "string"}}}),
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [JOE]}}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "description": JOE}}},
    {"structured_outputs": {"choice": [JOE]}},
    {"chat_template_kwargs": {"user": JOE, "image": "x"}},
    {"chat_template_kwargs": {"status": {"id": JOE}}},
    {"chat_template_kwargs": {JOE: True}},
    {"documents": [{"id": JOE, "title": "x"}]},
    {"documents": [{JOE: "x"}]},
    {"metadata": {"id": JOE}},
    {"logit_bias": {JOE: 1}},
    {"messages": [{"role": JOE, "content": "x"}]},
    {"messages": [{"role": "tool", "tool_call_id": JOE, "content": "x"}]},
    {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"id": JOE}}]}]},
    {"tool_choice": {"type": "function", "function": {"name": JOE}}},
    {"stream_options": {"format": JOE}},
    {"usage": [JOE]},
    {"user": JOE},
    {"a_new_field": {"user": JOE}},
    {"a_new_field": {JOE: 1}},
)


@pytest.mark.parametrize("fields", PLACES_OF_TEXTS, ids=str)
def test_a_text_is_seen_and_replaced_under_any_name(fields: dict[str, Any]) -> None:
    seen = Texts(fields)
    assert JOE in [each.text for each in seen.found]
    assert seen.unseen is None
    left = with_texts(fields, [each.text.replace(JOE, "[email]") for each in seen.found])
    assert json.dumps(left) == json.dumps(fields).replace(JOE, "[email]")


@pytest.mark.parametrize(
    "value", ["4111111111111111", "+44 20 7946 0958", "+442079460958", "call.4111-1111-1111-1111"]
)
def test_an_option_that_may_be_a_number_of_somebody_is_a_text(value: str) -> None:
    assert texts({"messages": [{"tool_call_id": value}]}) == [value]


def test_names_and_options_are_no_texts() -> None:
    schema = {
        "type": "object",
        "properties": {"type": {"type": ["string", "null"]}, "format": {"type": "integer"}},
        "required": ["type"],
    }
    fields = {
        "model": "@cf/meta/llama-3.1-8b",
        "user": "user_" + "a1b2c3d4e5f60718" * 4 + "_account__session_7c9e6679-7425-40de-944b-e07fc1f90ae7",
        "reasoning_effort": "low",
        "tool_choice": "auto",
        "stream_options": {"include_usage": True},
        "logit_bias": {"50256": -100},
        "response_format": {"type": "json_object"},
        "cache_salt": "c2FsdA==",
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [{"id": "call_a1b2c3d4e5f60718293a4b5c", "type": "function"}],
            },
            {"role": "tool", "tool_call_id": "call_a1b2c3d4e5f60718293a4b5c", "content": "x"},
        ],
    }
    assert texts(fields) == ["x"]
    assert texts(tool(schema)) == ["f", "type"]
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "usage": {"prompt_tokens_details": {"a": 1}}}
    assert texts(answer) == []
    note = {"choices": [{"message": {"annotations": [{"start_index": 1, JOE: "x"}]}}]}
    assert [each.text for each in Texts(note, keys=False).found] == ["x"]


def test_a_key_is_renamed_at_its_place_and_loses_no_other() -> None:
    fields = tool({"properties": {"a@b.com": {"type": "string"}, "c": {}, "d@e.com": {}, "[email]": {}}})
    seen = Texts(fields)
    left = with_texts(fields, ["[email]" if "@" in each.text else each.text for each in seen.found])
    properties = left["tools"][0]["function"]["parameters"]["properties"]
    assert list(properties) == ["[email] 2", "c", "[email] 3", "[email]"]
    assert properties["[email] 2"] == {"type": "string"}


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"type": "file", "content": JOE}]},
        {"messages": [{"content": [{"type": "text", "text": JOE, "source": {"type": "url"}}]}]},
        {"prompt": [1, JOE]},
        {"input": [True, JOE]},
        {"documents": [{"image": "data:x", "text": JOE}]},
    ],
    ids=str,
)
def test_texts_beside_what_has_none_are_seen_all_the_same(fields: dict[str, Any]) -> None:
    assert Texts(fields).unseen is not None
    assert JOE in texts(fields)


def test_other_texts_are_written_into_a_copy() -> None:
    fields = {"prompt": ["a", "b"], "model": "m"}
    assert with_texts(fields, ["x", "y"]) == {"prompt": ["x", "y"], "model": "m"}
    assert fields["prompt"] == ["a", "b"]


def test_guards_hold_by_model_tenant_endpoint_and_stage_in_their_order() -> None:
    guards = Guardrails(
        settings(
            {"name": "all", "mask": {}},
            {"name": "nick", "mask": {}, "models": ["nick"]},
            {"name": "team", "mask": {}, "tenants": ["red"], "when": "after"},
            {"name": "path", "mask": {}, "endpoints": ["/rerank"], "when": "before"},
        ).guardrails
    )

    def names(stage: Stage, *models: str, tenant: str = "blue", path: str = "/v1/messages") -> list[str]:
        return [each.name for each in guards.held(Subject(frozenset(models), tenant, path), stage)]

    assert names(Stage.BEFORE, "m") == ["all"]
    assert names(Stage.BEFORE, "m", "nick") == ["all", "nick"]
    assert names(Stage.AFTER, "m", tenant="red") == ["all", "team"]
    assert names(Stage.BEFORE, "m", tenant="red", path="/v2/rerank") == ["all", "path"]


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ({"verdict": "pass"}, Pass()),
        ({"verdict": "replace", "texts": ["x", "y"]}, Replace(("x", "y"))),
        ({"verdict": "refuse"}, Refuse()),
        ({"verdict": "refuse", "code": "c_1", "message": "no"}, Refuse("no", "c_1")),
    ],
)
def test_a_verdict_in_json_is_read(body: dict[str, Any], verdict: Verdict) -> None:
    assert verdict_from_json(json.dumps(body).encode(), CHECK) == verdict


BAD = (
    b"",
    b"null",
    b"[" * 5000,
    b"\xff",
    b'{"verdict":"maybe"}',
    b'{"verdict":"replace"}',
    b'{"verdict":"replace","texts":["x"]}',
    b'{"verdict":"replace","texts":[1,2]}',
    b'{"verdict":"refuse","code":"Not A Code"}',
    b'{"verdict":"pass","more":"secret"}',
)


@pytest.mark.parametrize("body", BAD)
def test_what_is_no_verdict_is_told_without_its_text(body: bytes) -> None:
    with pytest.raises(BadVerdict) as caught:
        verdict_from_json(body, CHECK)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", ["text", 1, Replace(("x",)), Replace((1, 2)), Refuse("x", "No"), Refuse(1)])  # type: ignore[arg-type]
def test_a_function_that_returns_something_else_has_failed(value: Any) -> None:
    with pytest.raises(BadVerdict):
        verdict_from_python(value, CHECK)


def test_verdicts_decide_what_goes_on() -> None:
    assert verdict_from_python(None, CHECK) == Pass()
    assert texts_after(Pass(), CHECK) == ("one", "two")
    assert texts_after(Replace(("x", "y")), CHECK) == ("x", "y")
    with pytest.raises(GuardRefused, match="'g' refused") as caught:
        texts_after(Refuse("a" * 9999, "code"), CHECK)
    assert len(caught.value.message) < MOST_MESSAGE + 100
    assert caught.value.code == "code"


@pytest.mark.parametrize(
    ("guard", "problem"),
    [
        ({"name": "a"}, "exactly one"),
        ({"name": "a", "mask": {}, "function": "a:b"}, "exactly one"),
        ({"name": "a b", "mask": {}}, "name"),
        ({"name": "a", "function": "no_colon"}, "module:name"),
        ({"name": "a", "http": {"url": "guard"}}, "URL"),
        ({"name": "a", "mask": {}, "models": ["other"]}, "not served"),
        ({"name": "a", "mask": {}, "endpoints": ["/v1/chat"]}, "/v1/chat"),
        ({"name": "a", "mask": {"kinds": ["name"]}}, "kinds"),
        ({"name": "a", "mask": {}, "timeout_s": 0}, "timeout_s"),
    ],
)
def test_settings_that_cannot_work_are_refused(guard: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        settings(guard)


def test_two_guards_have_two_names() -> None:
    with pytest.raises(SettingsError, match="given twice"):
        settings({"name": "a", "mask": {}}, {"name": "a", "mask": {}})


def test_what_is_not_seen_is_judged_as_a_failure_unless_a_setting_says_otherwise() -> None:
    def refuses(**given: Any) -> bool:
        return GuardrailSettings.model_validate({"name": "a", "mask": {}, **given}).refuses_unseen

    assert (refuses(), refuses(on_failure="allow")) == (True, False)
    assert (refuses(unseen="allow"), refuses(on_failure="allow", unseen="refuse")) == (False, True)


def test_the_examples_of_the_page_work() -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```(yaml|python)\n(.*?)```", page, re.DOTALL))
    guards = yaml.safe_load(blocks["yaml"])["guardrails"]
    assert [each.name for each in settings(*guards).guardrails] == [
        "private-data",
        "house-rules",
        "moderation",
    ]
    module: dict[str, Any] = {}
    exec(blocks["python"], module)
    said = Check("g", Stage.AFTER, "m", "t", "/v1/messages", (Text("We guarantee it."),))
    assert module["no_promises"](said) == Refuse("Promises are made by people.", code="no_promises")
    assert module["no_promises"](CHECK) is None
    for line in re.findall(r'^\{"verdict".*$', page, re.MULTILINE):
        one = Check("g", Stage.AFTER, "m", "t", "/v1/messages", (Text("x"),))
        assert verdict_from_json(line.encode(), one)
