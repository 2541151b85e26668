"""Requests that would cost an engine more than one request may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.errors import BadRequest
from serve_app.openai.bounds import (
    GENERATE,
    asked_output,
    default_output,
    refuse_excess,
    weigh,
    weight_field,
)
from serve_app.openai.depth import is_deeper
from serve_app.openai.schemas import multiplied_out
from serve_app.settings import LimitSettings

LIMITS = LimitSettings()
TURN = {"role": "user", "content": "hi"}


def nested(levels: int) -> Any:
    """An object whose deepest value lies ``levels`` containers deep."""
    value: Any = {}
    for level in range(levels - 1):
        value = {"a": value} if level % 2 else [value]
    return value


def refused(fields: dict[str, Any], limits: LimitSettings = LIMITS) -> tuple[str | None, str | None]:
    """Field and reason. Raises AssertionError: it is not refused."""
    with pytest.raises(BadRequest) as caught:
        refuse_excess(fields, limits)
    return caught.value.param, caught.value.code


def test_depth_counts_objects_and_arrays() -> None:
    assert not is_deeper({"a": 1}, 1)
    assert is_deeper({"a": []}, 1)
    assert not is_deeper({"a": [{}], "b": "[[[[[[["}, 3)
    assert is_deeper({"a": [{}], "b": []}, 2)


@pytest.mark.parametrize("field", ["response_format", "metadata", "messages", "tools"])
def test_a_body_may_be_as_deep_as_the_limit_and_no_deeper(field: str) -> None:
    refuse_excess({"model": "m", field: nested(63)}, LIMITS)
    assert refused({"model": "m", field: nested(64)}) == (field, "nested_too_deeply")


@pytest.mark.parametrize("kind", ["json", "structural_tag"])
def test_json_that_is_written_as_text_is_measured_too(kind: str) -> None:
    for within, field in ({"structured_outputs": {kind: None}}, f"structured_outputs.{kind}"), (None, None):
        fields = within and {"structured_outputs": {kind: json.dumps(nested(64))}}
        refuse_excess(fields or {f"guided_{kind}": json.dumps(nested(64))}, LIMITS)
        for levels in (65, 5000):
            text = "[" * levels + "]" * levels
            deep = {"structured_outputs": {kind: text}} if within else {f"guided_{kind}": text}
            assert refused(deep) == (field or f"guided_{kind}", "nested_too_deeply")


def test_texts_may_hold_any_brackets() -> None:
    prompt = "[" * 5000
    refuse_excess(
        {"messages": [{"role": "user", "content": prompt}], "prompt": prompt, "stop": prompt}, LIMITS
    )


LONG = {"type": "string", "description": "x" * LIMITS.max_schema_bytes}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": LONG}}}, "response_format"),
        ({"text": {"format": {"type": "json_schema", "schema": LONG}}}, "text"),
        ({"output_config": {"format": {"schema": LONG}}}, "output_config"),
        ({"structured_outputs": {"json": LONG}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": json.dumps(LONG)}}, "structured_outputs.json"),
        ({"structured_outputs": {"grammar": "x" * 70_000}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"choice": ["x" * 700] * 100}}, "structured_outputs.choice"),
        ({"guided_json": LONG}, "guided_json"),
        ({"guided_grammar": "x" * 70_000}, "guided_grammar"),
        ({"tools": [{}, {"type": "function", "function": {"parameters": LONG}}]}, "tools[1]"),
        ({"tools": [{"name": "t", "input_schema": LONG}]}, "tools[0]"),
    ],
)
def test_a_schema_that_is_too_long_is_refused_wherever_it_stands(fields: dict[str, Any], param: str) -> None:
    assert refused(fields) == (param, "schema_too_large")


def test_tools_are_one_grammar_only_where_one_must_be_called() -> None:
    tools = [{"type": "function", "function": {"description": "x" * 1000}}] * 100
    for choice in ("auto", "none", None, {"type": "auto"}):
        refuse_excess({"tools": tools, "tool_choice": choice}, LIMITS)
    for choice in ("required", {"type": "any"}, {"type": "function", "function": {"name": "t"}}):
        assert refused({"tools": tools, "tool_choice": choice}) == ("tools", "schema_too_large")


def wide(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(count)}, **more}


def test_an_object_has_so_many_properties() -> None:
    refuse_excess({"guided_json": {"$defs": {"a": wide(256), "b": wide(256)}}}, LIMITS)
    assert refused({"guided_json": {"$defs": {"a": wide(257)}}}) == ("guided_json", "schema_too_costly")


@pytest.mark.parametrize("counting", ["minProperties", "maxProperties"])
def test_objects_that_count_their_properties_have_fewer(counting: str) -> None:
    refuse_excess({"guided_json": wide(100, **{counting: 50})}, LIMITS)
    two = {"anyOf": [wide(60, **{counting: 50}), wide(60, **{counting: 50})]}
    assert refused({"structured_outputs": {"json": two}}) == ("structured_outputs.json", "schema_too_costly")
    assert refused({"guided_json": json.dumps(two)}) == ("guided_json", "schema_too_costly")


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc*", 0),
        ("a{3}", 3),
        ("^[a-z]{10,200}$", 200),
        ("a{5,}", 5),
        ("a{,7}", 7),
        ("(ab{2,9}){6}", 60),
        ("((a{10}){10}){10}", 1000),
        (r"\(\{a{4}", 6),
        ("[{9}(]{2}", 2),
        ("x(a{3}|b{4})", 8),
        ("a{99999999999999999999}", 10**9),
        ("(" * 500 + "a{9}", 9),
        ("a}{", 3),
        ("a{", 0),
        ("){2}", 2),
    ],
)
def test_repetitions_are_multiplied_out(pattern: str, size: int) -> None:
    assert multiplied_out(pattern) == pytest.approx(size, abs=3)


@pytest.mark.parametrize("pattern", ["[a-z]{10000,20000}", "((a{11}){11}){11}", "(a|b{2}){1,600}"])
def test_a_pattern_that_repeats_too_often_is_refused_wherever_it_stands(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert refused({"structured_outputs": {"regex": pattern}}) == (
        "structured_outputs.regex",
        "pattern_too_costly",
    )
    assert refused({"guided_regex": pattern}) == ("guided_regex", "pattern_too_costly")
    assert refused({"guided_json": schema}) == ("guided_json", "pattern_too_costly")
    assert refused({"guided_json": {"patternProperties": {pattern: {}}}})[1] == "pattern_too_costly"
    assert refused({"response_format": {"json_schema": {"schema": schema}}})[0] == "response_format"
    assert refused({"tools": [{"input_schema": schema}]}) == ("tools[0]", "pattern_too_costly")


def test_a_schema_as_text_hides_nothing() -> None:
    spelt = r'{"type": "string", "\u0070attern": "a{5000}"}'
    assert refused({"structured_outputs": {"json": spelt}})[1] == "pattern_too_costly"
    for text in ("{", '{"a": NaN, "pattern": "a{5000}"}', "nonsense"):
        assert refused({"guided_json": text}) == ("guided_json", "invalid_json")


def test_patterns_of_everyday_schemas_pass_and_many_of_them_add_up() -> None:
    def many(count: int, pattern: str) -> dict[str, Any]:
        return {"guided_json": {"prefixItems": [{"type": "string", "pattern": pattern}] * count}}

    refuse_excess(many(100, "^[a-z0-9-]{1,64}$"), LIMITS)
    refuse_excess(many(1, "^(" + "|".join(f"v{n}" for n in range(500)) + ")$"), LIMITS)
    assert refused(many(20, "^[a-z]{0,500}$")) == ("guided_json", "pattern_too_costly")
    assert refused(many(100, "x" * 50)) == ("guided_json", "pattern_too_large")
    assert refused({"guided_regex": "x" * 5000}) == ("guided_regex", "pattern_too_large")


@pytest.mark.parametrize(
    "broken",
    [
        {"structured_outputs": []},
        {"structured_outputs": {"json": 7, "regex": 5, "choice": {"a": 1}}},
        {"response_format": "json", "tools": {}, "tool_choice": []},
        {"tools": [None, 3, "pattern"], "tool_choice": {"a": []}},
        {"guided_json": [], "guided_regex": ["("]},
        {"guided_json": {"pattern": 3, "properties": [], "patternProperties": "minProperties"}},
        {"n": None, "best_of": [], "prompt": {}, "input": {}, "documents": 7},
    ],
)
def test_what_is_no_constraint_is_left_for_the_engine_to_refuse(broken: dict[str, Any]) -> None:
    refuse_excess(broken, LIMITS)


@pytest.mark.parametrize(
    ("fields", "weight"),
    [
        ({}, 1),
        ({"n": 4}, 4),
        ({"n": 4.0}, 4),
        ({"n": "4"}, 4),
        ({"n": 2, "best_of": 5}, 5),
        ({"n": 3, "use_beam_search": True}, 3),
        ({"prompt": "text"}, 1),
        ({"prompt": ["one", "two"]}, 2),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2, 3], [4]], "n": 3}, 6),
        ({"prompt_embeds": ["a", "b", "c"]}, 3),
        ({"prompt": []}, 1),
        ({"n": "many"}, 1),
        ({"n": -5}, 1),
        ({"n": True}, 1),
        ({"messages": [TURN]}, 1),
        ({"messages": [TURN] * 100}, 1),
        ({"messages": [TURN] * 100, "n": 3}, 3),
        ({"messages": []}, 1),
        ({"messages": "hi"}, 1),
        ({"messages": [[TURN]]}, 1),
        ({"messages": [[TURN], [TURN, TURN], [TURN]]}, 3),
        ({"messages": [[TURN], [TURN]], "n": 3}, 6),
        ({"messages": [[], [TURN], [TURN]]}, 3),
        ({"messages": [[TURN], [TURN]], "prompt": ["a", "b", "c"]}, 3),
    ],
)
def test_a_request_weighs_as_many_sequences_as_it_asks_for(fields: dict[str, Any], weight: int) -> None:
    assert weigh(fields, LIMITS) == weight


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"n": 17}, ("n", "too_many_answers")),
        ({"n": "400"}, ("n", "too_many_answers")),
        ({"n": 1e300}, ("n", "too_many_answers")),
        ({"best_of": 17}, ("best_of", "too_many_answers")),
        ({"prompt": ["x"] * 65}, ("prompt", "too_many_prompts")),
        ({"prompt": [[1]] * 65}, ("prompt", "too_many_prompts")),
        ({"prompt": "x", "prompt_embeds": ["x"] * 65}, ("prompt_embeds", "too_many_prompts")),
        ({"messages": [[TURN]] * 65}, ("messages", "too_many_prompts")),
        ({"input": ["x"] * 2049}, ("input", "too_many_inputs")),
        ({"input": [[1]] * 2049}, ("input", "too_many_inputs")),
        ({"documents": ["x"] * 2049, "query": "q"}, ("documents", "too_many_inputs")),
        ({"input": "x" * 1_048_577}, ("input", "input_too_long")),
        ({"input": ["x" * 1024] * 1025}, ("input", "input_too_long")),
    ],
)
def test_too_many_answers_prompts_and_texts_are_refused(
    fields: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert refused(fields) == expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"messages": [[TURN]] * 2, "n": 2}, "n"),
        ({"messages": [[TURN]] * 2, "n": 1}, "messages"),
        ({"messages": [[TURN]] * 2}, "messages"),
        ({"prompt": ["a", "b"]}, "prompt"),
    ],
)
def test_what_makes_a_request_heavy_is_named(fields: dict[str, Any], field: str) -> None:
    assert weight_field(fields) == field


def test_as_many_as_the_limit_pass() -> None:
    refuse_excess({"n": 16, "prompt": ["x"] * 64}, LIMITS)
    refuse_excess({"input": ["x" * 512] * 2048}, LIMITS)
    refuse_excess({"input": list(range(8192))}, LIMITS)
    refuse_excess({"prompt": list(range(30000))}, LIMITS)


@pytest.mark.parametrize(
    ("path", "fields", "most"),
    [
        ("/v1/chat/completions", {"max_tokens": 3, "max_completion_tokens": 5}, 5),
        ("/v1/chat/completions", {}, None),
        ("/v1/chat/completions", {"sampling_params": {"max_tokens": 3}}, None),
        ("/v1/completions", {}, None),
        ("/v1/completions", {"max_tokens": None, "max_completion_tokens": 1}, None),
        ("/v1/completions", {"max_tokens": 0, "echo": True}, 0),
        (GENERATE, {"token_ids": [1], "sampling_params": {"max_tokens": 700}}, 700),
        (GENERATE, {"token_ids": [1], "max_tokens": 1, "sampling_params": {"max_tokens": None}}, None),
    ],
)
def test_what_an_answer_may_have_at_most_is_read_where_the_path_has_it(
    path: str, fields: dict[str, Any], most: int | None
) -> None:
    assert asked_output(path, fields) == most


@pytest.mark.parametrize(
    ("path", "fields", "most"),
    [
        ("/v1/chat/completions", {}, None),
        ("/v1/completions", {}, 16),
        ("/v1/completions", {"max_tokens": None}, None),
        (GENERATE, {"token_ids": [1], "sampling_params": {}}, 16),
        (GENERATE, {"token_ids": [1], "sampling_params": "all"}, 16),
        (GENERATE, {"token_ids": [1], "sampling_params": {"max_tokens": None}}, None),
    ],
)
def test_some_paths_have_a_limit_where_a_request_names_none(
    path: str, fields: dict[str, Any], most: int | None
) -> None:
    assert default_output(path, fields) == most


def test_answers_of_a_request_of_tokens_are_counted() -> None:
    assert weigh({"token_ids": [1], "sampling_params": {"n": 3}}, LIMITS) == 3
    assert refused({"token_ids": [1], "sampling_params": {"n": 10_000}}) == ("n", "too_many_answers")
