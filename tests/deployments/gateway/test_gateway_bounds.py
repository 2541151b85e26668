"""Requests that would cost an engine too much: refused on every path, before an engine is asked."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from support.gateway import COMPLETIONS, FAST, MODEL, Answered, Running, gateway
from support.graph import CHAT

MESSAGES = [{"role": "user", "content": "hi"}]
PATHS = [CHAT, COMPLETIONS, "/v1/embeddings", "/v1/responses", "/v1/messages", "/tokenize"]
EMBEDDER = {"id": "embedder", "source": "none"}
AS_JSON = {"content-type": "application/json"}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": MESSAGES, "prompt": "hi", "input": "hi", **fields}


def nested_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


async def refused(running: Running, path: str, fields: dict[str, Any]) -> Answered:
    before = running.requests()
    answer = await running.send(fields, path)
    assert answer.status == 400, answer.body
    assert running.requests() == before
    return answer


@pytest.mark.parametrize("path", PATHS)
async def test_a_deeply_nested_schema_is_refused_on_every_path(path: str) -> None:
    async with gateway(FAST) as running:
        deep = nested_schema(300)
        given = {"type": "json_schema", "json_schema": {"name": "a", "schema": deep}}
        for fields, param in (
            ({"response_format": given}, "response_format"),
            ({"structured_outputs": {"json": deep}}, "structured_outputs"),
            ({"structured_outputs": {"json": json.dumps(deep)}}, "structured_outputs.json"),
            ({"guided_json": json.dumps(deep)}, "guided_json"),
            ({"tools": [{"type": "function", "function": {"parameters": deep}}]}, "tools"),
        ):
            answer = await refused(running, path, body(**fields))
            assert (
                f"`{param}` is nested deeper than 64 levels (limits.max_json_depth)" in answer.body.decode()
            )


async def test_grammars_of_clients_can_be_switched_off_where_schemas_go_on() -> None:
    tag = {"type": "structural_tag", "format": {"type": "grammar", "grammar": "root ::= root root"}}
    within = {"type": "sequence", "elements": [{"type": "any_text"}, tag["format"]]}
    fine = {"type": "object", "properties": {"grammar": {"type": "string"}, "type": {"const": "grammar"}}}
    async with gateway(FAST, limits={"allow_grammars": False}) as running:
        for fields, param in (
            ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "structured_outputs.grammar"),
            ({"guided_grammar": 'root ::= "a"'}, "guided_grammar"),
            (
                {"structured_outputs": {"structural_tag": json.dumps(tag)}},
                "structured_outputs.structural_tag",
            ),
            ({"response_format": tag}, "response_format"),
            ({"response_format": {"type": "structural_tag", "format": within}}, "response_format"),
        ):
            answer = await refused(running, CHAT, body(**fields))
            error = json.loads(answer.body)["error"]
            assert (error["code"], error["param"]) == ("grammars_not_allowed", param)
            assert "limits.allow_grammars" in error["message"]
        given = {"type": "json_schema", "json_schema": {"name": "a", "schema": fine}}
        assert (await running.send(body(response_format=given), CHAT)).status == 200
    async with gateway(FAST) as running:
        grammar = {"structured_outputs": {"grammar": 'root ::= "a"'}}
        assert (await running.send(body(**grammar), CHAT)).status == 200


@pytest.mark.parametrize("path", PATHS)
async def test_costly_patterns_and_large_schemas_are_refused_on_every_path(path: str) -> None:
    async with gateway(FAST) as running:
        long = {"type": "string", "description": "x" * 70_000}
        for fields, said in (
            ({"structured_outputs": {"regex": "[a-z]{10000,20000}"}}, "structured_outputs.regex"),
            ({"response_format": {"schema": {"pattern": "a{2000}"}}}, "limits.max_pattern_repeats"),
            ({"structured_outputs": {"json": long}}, "limits.max_schema_bytes"),
        ):
            assert said in (await refused(running, path, body(**fields))).body.decode()


@pytest.mark.parametrize("path", [path for path in PATHS if path not in {"/v1/messages", "/v1/responses"}])
async def test_too_many_answers_prompts_and_texts_are_refused_where_a_path_has_them(path: str) -> None:
    """Messages and Responses ask for one answer to one conversation, and pass on no such field."""
    async with gateway(FAST) as running:
        for fields, said in (
            ({"n": 400}, "limits.max_n"),
            # A chat's `prompt` is a stored one.
            ({"prompt": ["hi"] * 65}, "setting `prompts`" if path == CHAT else "limits.max_prompts"),
            ({"input": ["hi"] * 2049}, "limits.max_embedding_inputs"),
        ):
            assert said in (await refused(running, path, body(**fields))).body.decode()


@pytest.mark.parametrize("levels", [70, 5_000, 20_000])
async def test_arguments_of_a_tool_call_are_not_nested_deeper_either(levels: int) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": deep}}
    item = {"type": "function_call", "call_id": "1", "name": "f", "arguments": deep}
    async with gateway(FAST) as running:
        turns = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}]
        answer = await refused(running, CHAT, {"model": MODEL, "messages": turns})
        assert answer.json["error"]["param"] == "messages[1].tool_calls[0].function.arguments"
        answer = await refused(running, "/v1/responses", {"model": MODEL, "input": [item]})
        assert answer.json["error"]["param"] == "input[0].arguments"


async def test_arguments_with_many_brackets_side_by_side_pass() -> None:
    flat = json.dumps([{"a": [1]}] * 200)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": flat}}
    async with gateway(FAST) as running:
        turns = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}]
        assert (await running.send({"model": MODEL, "messages": turns})).status == 200


async def test_the_bounds_are_settings() -> None:
    limits = {"max_json_depth": 8, "max_n": 2, "max_prompts": 3, "max_schema_bytes": 1024}
    async with gateway(FAST, limits=limits) as running:
        await refused(running, CHAT, body(tools=[{"function": {"parameters": nested_schema(3)}}]))
        await refused(running, CHAT, body(n=3))
        await refused(running, COMPLETIONS, body(prompt=["a"] * 4))
        await refused(running, CHAT, body(structured_outputs={"grammar": "x" * 1025}))
        assert (await running.send(body(n=1, guided_grammar="x" * 1024))).status == 200


@pytest.mark.parametrize("levels", [900, 5000, 200_000])
async def test_brackets_without_end_are_refused_wherever_json_is_read(levels: int) -> None:
    async with gateway(FAST, embedder=EMBEDDER) as running:
        asked = json.dumps(body()).encode()
        deep = asked[:-1] + b', "a": ' + b"[" * levels + b"]" * levels + b"}"
        for path in PATHS:
            async with running.http.post(path, data=deep, headers=AS_JSON) as response:
                assert response.status == 400
                assert b"nested" in await response.read()
        assert running.requests() == [0]


@pytest.mark.parametrize("model", [MODEL, EMBEDDER["id"]])
async def test_texts_to_embed_are_bounded_in_number_and_length(model: str) -> None:
    limits = {"max_embedding_inputs": 4, "max_embedding_characters": 100}
    async with gateway(FAST, limits=limits, embedder=EMBEDDER) as running:
        for given, setting in (
            (["x"] * 5, "limits.max_embedding_inputs"),
            (["x" * 51] * 2, "limits.max_embedding_characters"),
            ("x" * 101, "limits.max_embedding_characters"),
        ):
            fields = {"model": model, "input": given}
            answer = await refused(running, "/v1/embeddings", fields)
            assert answer.error["param"] == "input"
            assert setting in answer.error["message"]


async def test_a_prompt_that_is_all_brackets_is_answered() -> None:
    async with gateway(FAST) as running, aiohttp.ClientSession(running.url) as http:
        fields = {"model": MODEL, "messages": [{"role": "user", "content": "[{" * 20_000}]}
        async with http.post(CHAT, json=fields) as response:
            assert response.status == 200
