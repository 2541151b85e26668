"""Guardrails through a real gateway: what engines are sent, what clients are told, in every dialect."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web
from guarded import BLOCKED, HEAD, MASK, MASKED, SECRETS, Said, guard_server, guarded
from local_cache import local_cache
from scripted_member import answers, begin
from support.gateway import COMPLETIONS, MODEL, Running, chat
from support.graph import CHAT
from support.responses import responses_handle

MESSAGES = "/v1/messages"
ARGUMENTS = '{"to": "joe.bloggs@example.com", "card": 4111111111111111, "note": "a\\nb@example.com"}'
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "send", "parameters": {}}}]
KEYED: dict[str, Any] = {"tenants": ("red", "blue")}


def function(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "function": f"guarded:{name}", **settings}


def openai_client(running: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)


def anthropic_client(running: Running) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=running.url, api_key="none", max_retries=0)


async def drained(stream: Any) -> None:
    async for event in stream:
        assert event.type != "response.completed"


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_openais_client_reads_a_masked_stream(size: int) -> None:
    async with guarded(MASK, said=Said(size=size)) as to, openai_client(to.running) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": SECRETS}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
        assert text == MASKED
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == 12
        assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
        assert "joe" not in to.seen
        assert "4111 1111" not in to.seen
        assert MASKED in to.seen


async def test_a_masked_stream_passes_on_what_is_safe_before_the_answer_ends() -> None:
    async with guarded(MASK) as to, to.running.stream("hi") as stream:
        first = [json.loads(await stream.event()) for _ in range(3)]
        said = "".join(each["choices"][0]["delta"].get("content") or "" for each in first)
        assert said
        assert MASKED.startswith(said)
        assert (await stream.rest()).status == 200


async def test_anthropics_client_reads_a_masked_stream_with_thoughts_and_a_tool_call() -> None:
    said = Said(reasoning=f"Thinking of {SECRETS}", arguments=ARGUMENTS, size=5)
    async with guarded(MASK, said=said) as to, anthropic_client(to.running) as client:
        tools: Any = [{"name": "send", "input_schema": {"type": "object"}}]
        async with client.messages.stream(
            model=MODEL, max_tokens=99, messages=[{"role": "user", "content": SECRETS}], tools=tools
        ) as stream:
            message = await stream.get_final_message()
        thinking, text, call = message.content
        assert thinking.type == "thinking"
        assert thinking.thinking == f"Thinking of {MASKED}"
        assert text.type == "text"
        assert text.text == MASKED
        assert call.type == "tool_use"
        assert call.input == {"to": "[email]", "card": 0, "note": "a\n[email]"}
        assert "joe" not in to.seen


async def test_a_response_is_masked_in_its_stream_and_in_the_store_of_the_stream() -> None:
    async with guarded(MASK) as to, openai_client(to.running) as client:
        stream = await client.responses.create(model=MODEL, input=SECRETS, stream=True, store=False)
        events = [event async for event in stream]
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == MASKED
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response.output_text == MASKED


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stored_response_is_what_its_client_was_told(tmp_path: Path, stream: bool) -> None:
    async with (
        responses_handle(tmp_path) as store,
        guarded(MASK, handles={"responses": store}) as to,
        openai_client(to.running) as client,
    ):
        if stream:
            events = await client.responses.create(model=MODEL, input=SECRETS, stream=True)
            (last,) = [event async for event in events if event.type == "response.completed"]
            told = last.response
        else:
            told = await client.responses.create(model=MODEL, input=SECRETS)
        assert told.output_text == MASKED
        assert (await client.responses.retrieve(told.id)).output_text == MASKED
        again = await client.responses.create(model=MODEL, input="go on", previous_response_id=told.id)
        assert again.output_text == MASKED
        assert "joe" not in to.seen


def kept_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def shows_a_secret(text: str | bytes) -> bool:
    said = text if isinstance(text, str) else text.decode(errors="replace")
    return any(secret in said for secret in ("joe.bloggs", "7946", "4111"))


@pytest.mark.parametrize("background", [False, True])
async def test_the_store_keeps_of_a_request_what_its_guards_left(tmp_path: Path, background: bool) -> None:
    tool = {"type": "function", "name": "send", "parameters": {"type": "object"}, "description": SECRETS}
    body = {
        "model": MODEL,
        "instructions": f"Be kind. {SECRETS}",
        "metadata": {"about": SECRETS},
        "user": "ann",
        "input": [
            {"role": "user", "content": SECRETS},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "send",
                "arguments": '{"to": "joe.bloggs@x.com"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": SECRETS},
        ],
        "tools": [tool],
        "background": background,
    }
    async with (
        responses_handle(tmp_path) as store,
        guarded(MASK, handles={"responses": store}) as to,
        openai_client(to.running) as client,
    ):
        told = (await to.running.send(body, "/v1/responses")).json
        found = await client.responses.retrieve(told["id"])
        while found.status in ("queued", "in_progress"):
            await asyncio.sleep(0.02)
            found = await client.responses.retrieve(told["id"])
        assert found.status == "completed"
        assert found.metadata == {"about": MASKED}
        listed = await client.responses.input_items.list(told["id"], order="asc")
        items = [each.to_dict() for each in listed.data]
        assert items[0]["content"][0]["text"] == MASKED
        assert (items[1]["call_id"], items[1]["arguments"]) == ("call_1", '{"to": "[email]"}')
        assert items[2]["output"] == MASKED
        assert not shows_a_secret(json.dumps(told) + found.to_json())
        named = {"type": "item_reference", "id": items[0]["id"]}
        for more in ({"previous_response_id": told["id"], "input": "go on"}, {"input": [named]}):
            assert (await to.running.send({"model": MODEL, **more}, "/v1/responses")).status == 200
        assert not shows_a_secret(to.seen)
    assert not shows_a_secret(kept_bytes(tmp_path))


async def test_a_conversation_keeps_of_its_items_what_guards_left(tmp_path: Path) -> None:
    message = {"type": "message", "role": "user", "content": SECRETS}
    async with (
        responses_handle(tmp_path) as store,
        guarded(MASK, handles={"responses": store}) as to,
        openai_client(to.running) as client,
    ):
        made = await client.conversations.create(items=[message], metadata={"about": SECRETS})
        assert made.metadata == {"about": MASKED}
        changed = await client.conversations.update(made.id, metadata={"again": SECRETS})
        assert changed.metadata == {"again": MASKED}
        added = await client.conversations.items.create(made.id, items=[message])
        assert not shows_a_secret(added.to_json())
        await client.responses.create(model=MODEL, input=SECRETS, conversation=made.id)
        items = [each.to_json() for each in (await client.conversations.items.list(made.id)).data]
        assert len(items) == 4
        assert not shows_a_secret("".join(items))
    assert not shows_a_secret(kept_bytes(tmp_path))


async def test_what_a_guard_refuses_is_not_kept_in_a_conversation_either(tmp_path: Path) -> None:
    async with guard_server("refuse") as server, responses_handle(tmp_path) as store:
        settings = {"name": "strict", "http": {"url": server.url}, "models": [MODEL]}
        async with guarded(settings, handles={"responses": store}) as to:
            body = {"items": [{"role": "user", "content": SECRETS}]}
            refused = await to.running.send(body, "/v1/conversations")
            assert (refused.status, refused.error["code"]) == (400, "no_secrets")
    assert not shows_a_secret(kept_bytes(tmp_path))


async def test_clients_of_one_stream_are_told_what_their_own_guards_let_pass(tmp_path: Path) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()
    said = Said()

    async def slowly(request: web.Request) -> web.StreamResponse:
        begun.set()
        await goes_on.wait()
        return await said(request)

    only = {**MASK, "endpoints": [MESSAGES]}
    turn = {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with (
        local_cache(tmp_path, race=False) as cache,
        guarded(only, said=slowly, handles=cache.handles, **cache.args) as to,
    ):
        first = asyncio.ensure_future(to.running.send(turn, MESSAGES))
        await begun.wait()
        second = asyncio.ensure_future(to.running.post("hi", stream=True, max_tokens=99))
        await to.running.until_traffic(lambda counted: counted["joined"] == 1)
        goes_on.set()
        masked, plain = await first, await second
        assert plain.headers["x-cache"] == "joined"
        assert plain.text == SECRETS
        assert b"[email]" in masked.body
        assert b"joe" not in masked.body
        assert len(to.member.seen) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_text_completion_is_masked(stream: bool) -> None:
    async with guarded(MASK) as to:
        body = {"model": MODEL, "prompt": [SECRETS, "and " + SECRETS], "stream": stream}
        answered = await to.running.send(body, COMPLETIONS)
        assert answered.text == MASKED
        assert json.loads(to.member.seen[0].body)["prompt"] == [MASKED, "and " + MASKED]


async def test_a_text_in_a_schema_is_masked_under_any_name_in_each_dialect() -> None:
    secret = "joe@example.com"
    schema = {"type": "object", "properties": {"user": {"type": "string", "description": secret}}}
    left = {"type": "object", "properties": {"user": {"type": "string", "description": "[email]"}}}
    async with guarded(MASK) as to:
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [secret]}}}
        more = {"tools": tools, "response_format": form, "chat_template_kwargs": {"user": secret}}
        assert (await to.running.post("hi", **more)).status == 200
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"id": secret}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
        ]
        body = {"model": MODEL, "max_tokens": 9, "messages": turns}
        body["tools"] = [{"name": "f", "input_schema": schema}]
        assert (await to.running.send(body, MESSAGES)).status == 200
        asked = {"model": MODEL, "input": "hi", "tools": [{**tools[0]["function"], "type": "function"}]}  # type: ignore[dict-item]
        assert (await to.running.send(asked, "/v1/responses")).status == 200
        for sent in to.member.seen:
            assert json.loads(sent.body)["tools"][0]["function"]["parameters"] == left
        assert len(to.member.seen) == 3
        assert "joe" not in to.seen
    guard = function("refuses_haste", when="before")
    async with guarded(guard) as to:
        soon = {"type": "object", "properties": {"soon": {"type": "string"}}}
        tools = [{"type": "function", "function": {"name": "f", "parameters": soon}}]
        assert (await to.running.post("hi", tools=tools)).error["code"] == "haste"
        assert not to.member.seen


async def test_a_whole_answer_is_masked_with_thoughts_and_tool_calls() -> None:
    said = Said(reasoning=SECRETS, arguments=ARGUMENTS)
    async with guarded(MASK, said=said) as to:
        message = (await to.running.post("hi", tools=TOOLS)).json["choices"][0]["message"]
        assert (message["content"], message["reasoning"]) == (MASKED, MASKED)
        (call,) = message["tool_calls"]
        assert json.loads(call["function"]["arguments"])["card"] == 0
        assert call["function"]["name"] == "send"


def calling(*calls: dict[str, Any]) -> Any:
    """A member that streams a text and then calls of tools, each in an event of its own."""

    async def said(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        deltas = [{"role": "assistant", "content": "I call"}, *({"tool_calls": [call]} for call in calls)]
        choices: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in deltas]
        for choice in [*choices, {"delta": {}, "finish_reason": "tool_calls"}]:
            event = {**HEAD, "choices": [{"index": 0, **choice}]}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    return said


def custom(text: str, **more: Any) -> dict[str, Any]:
    return {"index": 0, **more, "custom": {"input": text}}


@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_the_input_of_a_custom_tool_is_masked_in_a_stream(size: int) -> None:
    first = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "send", "input": ""}}
    parts = [custom(SECRETS[place : place + size]) for place in range(0, len(SECRETS), size)]
    async with guarded(MASK, said=calling(first, *parts)) as to:
        answered = await to.running.post("hi", stream=True)
        events = [json.loads(line[6:]) for line in answered.body.decode().split("\n\n") if "{" in line]
        deltas = [event["choices"][0]["delta"] for event in events]
        calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
        assert "".join(call["custom"].get("input") or "" for call in calls) == MASKED
        assert calls[0]["id"] == "call_1"
        assert [call["custom"]["name"] for call in calls if call["custom"].get("name")] == ["send"]
        assert answered.text == "I call"
        ends = [event["choices"][0]["finish_reason"] for event in events]
        assert ends[-1] == "tool_calls"
    guard = function("refuses_haste", when="after")
    async with guarded(guard, said=calling(first, *parts)) as to:
        cut = await to.running.post("hi", stream=True)
        assert cut.cut["code"] == "haste"
        assert b"joe" not in cut.body


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function", "function": {"name": "joe@example.com", "arguments": "{}"}},
        {"type": "custom", "custom": {"name": "joe@example.com", "input": ""}},
        {"type": "function", "function": {"name": "f", "arguments": {"id": "joe@example.com"}}},
        {"type": "function", "function": {"name": "f", "input": "joe@example.com"}},
        {"type": "new", "server": {"input": "joe@example.com"}},
        {"type": "new", "arguments": "joe@example.com", "function": {"name": "f"}},
    ],
    ids=str,
)
async def test_all_that_a_streamed_call_says_is_masked(call: dict[str, Any]) -> None:
    async with guarded(MASK, said=calling({"index": 0, "id": "call_1", **call})) as to:
        answered = await to.running.post("hi", stream=True)
        assert (answered.status, answered.text) == (200, "I call")
        assert b"[email]" in answered.body
        assert b"joe" not in answered.body
        assert b"call_1" in answered.body


async def test_escapes_in_the_arguments_of_a_call_hide_nothing() -> None:
    hidden = r'{"to": "joe\u0040example.com", "card": "\u0034111 1111\u00201111 1111", "n": "a\/b\n\u00e9"}'
    for size in (1, 2, 5, 1000):
        async with guarded(MASK, said=Said(text="x", arguments=hidden, size=size)) as to:
            for stream in (False, True):
                turn = {"role": "user", "content": "hi"}
                body = {"model": MODEL, "max_tokens": 99, "messages": [turn], "stream": stream}
                if not stream:
                    (_, call) = (await to.running.send(body, MESSAGES)).json["content"]
                    assert call["input"] == {"to": "[email]", "card": "[card]", "n": "a/b\né"}
                    continue
                answered = await to.running.post("hi", stream=True, tools=TOOLS)
                events = [
                    json.loads(part[6:]) for part in answered.body.decode().split("\n\n") if "{" in part
                ]
                deltas = [each["choices"][0]["delta"] for each in events if each["choices"]]
                calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
                said = "".join(call["function"].get("arguments") or "" for call in calls)
                assert json.loads(said) == {"to": "[email]", "card": "[card]", "n": "a/b\né"}
    async with guarded(function("refuses_haste"), said=Said(text="x", arguments=r'{"a": "s\u006fon"}')) as to:
        assert (await to.running.post("hi", stream=True)).cut["code"] == "haste"
        assert (await to.running.post("hi")).error["code"] == "haste"


async def test_log_probabilities_do_not_tell_a_masked_text_again() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        whole = Said()._whole(True)
        whole["choices"][0]["logprobs"] = {"content": [{"token": "joe.bloggs", "logprob": -1.0}]}
        return web.json_response(whole)

    async with guarded(MASK, said=answer) as to:
        answered = await to.running.post("hi", logprobs=True)
        assert answered.text == MASKED
        assert b"joe" not in answered.body


async def test_embeddings_and_counted_tokens_are_of_the_masked_text() -> None:
    async with guarded(MASK) as to:
        body = {"model": MODEL, "input": [SECRETS, "plain"]}
        assert (await to.running.send(body, "/v1/embeddings")).status == 200
        assert json.loads(to.member.seen[0].body)["input"] == [MASKED, "plain"]
        count = {"model": MODEL, "messages": [{"role": "user", "content": SECRETS}]}
        await to.running.send(count, "/v1/messages/count_tokens")
        assert "joe" not in to.seen


async def test_the_cache_is_asked_for_the_masked_text_and_keeps_what_the_engine_said(tmp_path: Path) -> None:
    only = {**MASK, "endpoints": [MESSAGES]}
    turn = {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    async with (
        local_cache(tmp_path, race=False) as cache,
        guarded(only, handles=cache.handles, **cache.args) as to,
    ):
        first = await to.running.send(turn, MESSAGES)
        assert first.headers["x-cache"] == "miss"
        assert first.json["content"][0]["text"] == MASKED
        other = await to.running.post("hi", max_tokens=99)
        assert (other.headers["x-cache"], other.text) == ("exact", SECRETS)
        for stream in (False, True):
            again = await to.running.send({**turn, "stream": stream}, MESSAGES)
            assert again.headers["x-cache"] == "exact"
            assert b"[email]" in again.body
            assert b"joe" not in again.body
            assert b"41111111" not in again.body
        one = await to.running.send(
            {**turn, "messages": [{"role": "user", "content": "ask ann@example.com"}]}, MESSAGES
        )
        two = await to.running.send(
            {**turn, "messages": [{"role": "user", "content": "ask bob@example.com"}]}, MESSAGES
        )
        assert (one.headers["x-cache"], two.headers["x-cache"]) == ("miss", "exact")


async def test_a_guard_holds_for_its_tenants_models_and_endpoints_only() -> None:
    async with guarded({**MASK, "tenants": ["red"]}, **KEYED) as to:
        red, blue = to.running.headers("red"), to.running.headers("blue")
        assert (await to.running.post("hi", red)).text == MASKED
        assert (await to.running.post("hi", blue)).text == SECRETS
    async with guarded({**MASK, "models": ["nick"]}, model={"aliases": ["nick"]}) as to:
        assert (await to.running.post("hi")).text == SECRETS
        assert (await to.running.send({**chat("hi"), "model": "nick"})).text == MASKED


async def test_guards_are_asked_in_order_and_each_sees_what_the_last_one_left() -> None:
    async with guarded(MASK, function("shouts")) as to:
        assert (await to.running.post(SECRETS)).text == MASKED.upper()
        assert MASKED.upper() in to.seen
    async with guarded(function("shouts_later", when="after"), MASK) as to:
        assert (await to.running.post("hi", stream=True)).text == MASKED.upper().replace(
            MASKED.upper(), "WRITE TO [email] OR [phone], CARD [card], SOON."
        )


async def test_a_request_is_refused_before_any_engine_in_each_dialect() -> None:
    async with guarded(function("refuses_haste", when="before")) as to:
        refused = await to.running.post(SECRETS)
        assert (refused.status, refused.error["code"]) == (400, "haste")
        assert refused.error["message"] == "The guardrail 'refuses_haste' refused this: no haste"
        turn = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": SECRETS}]}
        claude = await to.running.send(turn, MESSAGES)
        assert (claude.status, claude.json["error"]["type"]) == (400, "invalid_request_error")
        system = await to.running.send(
            {**turn, "system": "soon", "messages": chat("x")["messages"]}, MESSAGES
        )
        assert system.status == 400
        asked = await to.running.send({"model": MODEL, "input": SECRETS}, "/v1/responses")
        assert (asked.status, asked.error["code"]) == (400, "haste")
        embedded = await to.running.send({"model": MODEL, "input": SECRETS}, "/v1/embeddings")
        assert embedded.status == 400
        assert not to.member.seen


async def test_a_guard_that_refuses_an_answer_ends_its_stream_with_an_error() -> None:
    guard = function("refuses_haste", when="after", piece_chars=60)
    async with guarded(guard) as to:
        cut = await to.running.post("hi", stream=True)
        assert cut.cut["code"] == "haste"
        assert b"joe.blo" in cut.body
        assert b"soon" not in cut.body
        async with openai_client(to.running) as client:
            with pytest.raises(openai.APIError, match="refuses_haste"):
                async for _ in await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
                ):
                    pass
            responses = await client.responses.create(model=MODEL, input="hi", stream=True, store=False)
            with pytest.raises(openai.APIError, match="refuses_haste"):
                await drained(responses)
        async with anthropic_client(to.running) as client:
            with pytest.raises(anthropic.APIStatusError, match="refuses_haste"):
                async with client.messages.stream(
                    model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "hi"}]
                ) as stream:
                    await stream.get_final_message()
        whole = await to.running.post("hi")
        assert (whole.status, whole.error["code"]) == (400, "haste")


async def test_a_guard_without_pieces_judges_a_stream_before_any_of_it_is_passed_on() -> None:
    async with guarded(function("refuses_haste", when="after")) as to:
        answered = await to.running.post("hi", stream=True)
        assert answered.cut["code"] == "haste"
        assert b"Write" not in answered.body


async def test_a_server_is_asked_with_its_header_and_its_verdict_holds(monkeypatch: Any) -> None:
    async with guard_server("upper") as server:
        guard = {"name": "remote", "http": {"url": server.url, "headers_env": {"x-token": "GUARD_TOKEN"}}}
        headers = {"remote": {"x-token": "t0ken"}}
        async with guarded(guard, guard_headers=headers) as to:
            assert (await to.running.post(SECRETS, stream=True)).text == SECRETS.upper()
            assert SECRETS.upper() in to.seen
        before, after = server.asked
        assert before == {
            "guard": "remote",
            "stage": "before",
            "model": MODEL,
            "tenant": before["tenant"],
            "endpoint": CHAT,
            "texts": [{"text": SECRETS, "kind": "text", "role": "user"}],
        }
        assert (after["stage"], after["texts"][0]["text"]) == ("after", SECRETS)
        assert {each["x-token"] for each in server.headers} == {"t0ken"}
        server.act = "refuse"
        async with guarded(guard, guard_headers=headers) as to:
            refused = await to.running.post("hi")
            assert (refused.status, refused.error["code"]) == (400, "no_secrets")


FAULTS = ("hang", "crash", "huge", "status", "too few", "nonsense", "bad code")


@pytest.mark.parametrize("act", FAULTS)
async def test_a_server_that_fails_refuses_or_lets_pass_as_its_settings_say(
    act: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with guard_server(act) as server:
        guard = {
            "name": "remote",
            "http": {"url": server.url, "max_answer_bytes": 100_000},
            "timeout_s": 0.2 if act == "hang" else 30.0,
        }
        with caplog.at_level(logging.INFO, logger="ray.serve"):
            async with guarded(guard) as to:
                refused = await to.running.post(SECRETS)
                assert (refused.status, refused.error["code"]) == (503, "guardrail_failed")
                assert "'remote'" in refused.error["message"]
                assert not to.member.seen
            async with guarded({**guard, "on_failure": "allow"}) as to:
                assert (await to.running.post(SECRETS)).text == SECRETS
                assert (await to.running.post(SECRETS, stream=True)).text == SECRETS
        assert "guardrail remote fails" in caplog.text
        assert "joe" not in caplog.text + refused.body.decode()


async def test_a_server_that_is_not_there_is_a_failure() -> None:
    guard = {"name": "remote", "http": {"url": "http://127.0.0.1:9/check"}, "when": "after"}
    async with guarded(guard) as to:
        assert (await to.running.post("hi")).status == 503
        assert (await to.running.post("hi", stream=True)).cut["code"] == "guardrail_failed"


@pytest.mark.parametrize("name", ["raises", "exits", "returns_nonsense", "blocks"])
async def test_a_function_that_fails_refuses_or_lets_pass(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    BLOCKED.clear()
    guard = function(name, timeout_s=0.2 if name == "blocks" else 30.0)
    try:
        with caplog.at_level(logging.INFO, logger="ray.serve"):
            async with guarded(guard) as to:
                refused = await to.running.post(SECRETS)
                assert (refused.status, refused.error["code"]) == (503, "guardrail_failed")
            async with guarded({**guard, "on_failure": "allow"}) as to:
                assert (await to.running.post(SECRETS, stream=True)).text == SECRETS
    finally:
        BLOCKED.set()
    assert "joe" not in caplog.text + refused.body.decode()


async def test_a_function_whose_calls_never_return_holds_a_bounded_number_of_threads() -> None:
    BLOCKED.clear()
    guard = function("blocks", when="before", timeout_s=0.1, max_calls=2)
    try:
        async with guarded(guard) as to:
            statuses = [(await to.running.post("hi")).status for _ in range(5)]
            assert statuses == [503] * 5
            from threading import enumerate as threads

            assert sum(thread.name == "guardrail" for thread in threads()) <= 2
    finally:
        BLOCKED.set()


async def test_a_text_that_is_too_long_is_not_judged() -> None:
    async with guarded(function("shouts", max_chars=10)) as to:
        assert (await to.running.post(SECRETS)).status == 503
        assert (await to.running.post("hi", stream=True)).cut["code"] == "guardrail_failed"
    async with guarded(function("shouts", max_chars=10, on_failure="allow")) as to:
        assert (await to.running.post(SECRETS, stream=True)).text == SECRETS


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


async def test_what_a_guard_cannot_see_is_refused_or_passed_by_its_setting() -> None:
    parts = [{"type": "text", "text": "what is this?"}, IMAGE]
    body = {"model": MODEL, "messages": [{"role": "user", "content": parts}]}
    tokens = {"model": MODEL, "prompt": [1, 2, 3]}
    other = {"model": MODEL, "input": "hi"}
    paths = (CHAT, COMPLETIONS, "/v1/moderations")
    async with guarded(MASK, paths=paths) as to:
        for refused in (
            await to.running.send(tokens, COMPLETIONS),
            await to.running.send(other, "/v1/moderations"),
            await to.running.send(body),
        ):
            assert (refused.status, refused.error["code"]) == (400, "guardrail_unseen")
        assert not to.member.seen
    async with guarded({**MASK, "unseen": "allow"}, paths=paths) as to:
        assert (await to.running.send(tokens, COMPLETIONS)).text == MASKED
        assert (await to.running.send(body)).text == MASKED


WAV = base64.b64decode("UklGRmQGAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YUAGAAA=") + bytes(1600)


async def test_a_transcript_is_an_answer_and_a_recording_is_seen_through_it() -> None:
    import aiohttp

    def form(**fields: str) -> aiohttp.FormData:
        given = aiohttp.FormData()
        given.add_field("file", WAV, filename="a.wav", content_type="audio/wav")
        for name, value in {"model": MODEL, **fields}.items():
            given.add_field(name, value)
        return given

    said = answers(200, {"text": SECRETS, "words": [{"word": "joe"}]})
    path = "/v1/audio/transcriptions"
    async with guarded(MASK, said=said) as to:
        async with to.running.http.post(path, data=form()) as response:
            assert (response.status, await response.json()) == (200, {"text": MASKED, "words": None})
        async with to.running.http.post(path, data=form(prompt="names")) as response:
            assert (await response.json())["error"]["code"] == "guardrail_unseen"
    async with guarded({**MASK, "when": "before"}, said=said) as to:
        async with to.running.http.post(path, data=form()) as response:
            assert (await response.json())["error"]["code"] == "guardrail_unseen"
        assert not to.member.seen


async def test_live_audio_is_refused_where_a_guard_would_not_see_it() -> None:
    async with guarded(MASK, paths=(CHAT, "/v1/realtime")) as to:
        with pytest.raises(Exception, match="400"):
            await to.running.http.ws_connect(f"/v1/realtime?model={MODEL}")
