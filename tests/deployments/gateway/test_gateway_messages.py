"""Anthropic's Messages API over real HTTP, read by Anthropic's own client: a chat inside, with all that chats
have."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import pytest
from aiohttp import web
from local_cache import LocalCache, local_cache
from scripted_member import Answer, Member, answers, chunk, cut, listening, says
from support.gateway import (
    DONE,
    MODEL,
    Answered,
    Faults,
    Running,
    SimSettings,
    as_sent,
    gateway,
)
from support.graph import CHAT

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HI = [{"role": "user", "content": "hi there"}]
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 16, "messages": HI}
QUICK = SimSettings(itl_ms=0, tokens=8, keep_bodies=8)
TOOL = {
    "name": "Read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
}
PLAN = json.dumps(
    [
        {
            "reasoning": "I need the file.",
            "text": "I read both.",
            "calls": [
                {"name": "Read", "arguments": {"file_path": "a.txt"}},
                {"name": "Read", "arguments": {"file_path": "b.txt"}},
            ],
        },
        {"text": "Both are empty."},
    ]
)


@pytest.fixture
async def cache(folder: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(folder, race=False) as cache:
        yield cache


@asynccontextmanager
async def claude(
    running: Running, key: str = "none", **options: Any
) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=running.url, api_key=key, max_retries=0, **options
    ) as client:
        yield client


async def message(client: anthropic.AsyncAnthropic, stream: bool, **fields: Any) -> Any:
    """A complete message, streamed or not."""
    if not stream:
        return await client.messages.create(**ASK | fields)
    async with client.messages.stream(**ASK | fields) as events:
        return await events.get_final_message()


def named_events(answer: Answered) -> list[tuple[str, dict[str, Any]]]:
    """Names and data of a stream's events; the name is in the data too."""
    *parts, rest = answer.body.decode().split("\n\n")
    assert rest == ""
    events = []
    for part in parts:
        name, data = part.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert [name for name, _ in events] == [data["type"] for _, data in events]
    return events


def text_of(answer: Answered) -> str:
    if answer.headers["content-type"].startswith("application/json"):
        return "".join(block["text"] for block in answer.json["content"])
    deltas = [data for name, data in named_events(answer) if name == "content_block_delta"]
    return "".join(data["delta"]["text"] for data in deltas)


# ---- what Anthropic's client reads ----


@pytest.mark.parametrize("stream", [False, True])
async def test_a_text(stream: bool) -> None:
    async with gateway(QUICK) as running, claude(running) as client:
        expected = (await running.post("hi there", max_tokens=16)).text
        given = await message(client, stream)
    assert [block.text for block in given.content] == [expected]
    assert (given.type, given.role, given.model) == ("message", "assistant", MODEL)
    assert (given.stop_reason, given.stop_sequence) == ("end_turn", None)
    assert given.id.startswith("msg_")
    assert (given.usage.input_tokens, given.usage.output_tokens) == (6, 9)


async def test_the_events_of_a_stream_in_their_order() -> None:
    async with gateway(QUICK) as running:
        events = named_events(await running.send(ASK | {"stream": True}, MESSAGES))
    names = [name for name, _ in events]
    assert names == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * 8,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_task_with_two_tools_at_once_and_reasoning(stream: bool) -> None:
    async with gateway(SimSettings(itl_ms=0, plan=PLAN)) as running, claude(running) as client:
        first = await message(client, stream, tools=[TOOL], max_tokens=200)
        thinking, text, *calls = first.content
        assert (thinking.type, thinking.thinking) == ("thinking", "I need the file.")
        assert thinking.signature
        assert (text.type, text.text) == ("text", "I read both.")
        assert [(call.type, call.name, call.input) for call in calls] == [
            ("tool_use", "Read", {"file_path": "a.txt"}),
            ("tool_use", "Read", {"file_path": "b.txt"}),
        ]
        assert first.stop_reason == "tool_use"
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": ""} for call in calls]
        turns = [
            *HI,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]
        last = await message(client, stream, tools=[TOOL], messages=turns)
    assert [block.text for block in last.content] == ["Both are empty."]
    assert last.stop_reason == "end_turn"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_shell_that_anthropic_describes_is_called_and_answered(stream: bool) -> None:
    shell = {"type": "bash_20250124", "name": "bash"}
    plan = json.dumps(
        [{"calls": [{"name": "bash", "arguments": {"command": "ls"}}]}, {"text": "It is empty."}]
    )
    async with gateway(SimSettings(itl_ms=0, plan=plan)) as running, claude(running) as client:
        first = await message(client, stream, tools=[shell], max_tokens=200)
        (call,) = first.content
        assert (call.type, call.name, call.input) == ("tool_use", "bash", {"command": "ls"})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": ""}
        turns = [*HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        last = await message(client, stream, tools=[shell], messages=turns)
    assert [block.text for block in last.content] == ["It is empty."]


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropics_tool_runner_goes_on_without_a_thread(stream: bool) -> None:
    """It wants the server to keep the conversation, until it is told that the server does not."""
    read: list[str] = []

    @anthropic.beta_async_tool(name="Read")
    async def read_file(file_path: str) -> str:
        """Reads a file."""
        read.append(file_path)
        return "empty"

    asked: dict[str, Any] = ASK | {"max_tokens": 200, "tools": [read_file], "stream": stream}
    async with gateway(SimSettings(itl_ms=0, plan=PLAN)) as running, claude(running) as client:
        last = await client.beta.messages.tool_runner(**asked).until_done()
    assert [block.text for block in last.content] == ["Both are empty."]
    assert read == ["a.txt", "b.txt"]


async def test_a_conversation_that_a_server_would_keep_is_refused_in_anthropics_words() -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    async with gateway(QUICK) as running:
        answer = await running.send(ASK | {"thread": thread}, MESSAGES)
        assert running.requests() == [0]
    assert answer.status == 400
    assert answer.error["details"] == {"error_code": "thread_unsupported_request"}


async def test_a_tool_that_only_anthropic_runs_is_named_in_its_own_shape() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    async with gateway(QUICK) as running, claude(running) as client:
        with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\]\.type") as caught:
            await message(client, False, tools=[search])
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "choice", [{"type": "any"}, {"type": "tool", "name": "Read"}], ids=lambda c: c["type"]
)
async def test_a_forced_tool_ends_with_its_use(choice: dict[str, str], stream: bool) -> None:
    """vLLM ends the chat of a named tool with `stop`."""
    async with gateway(QUICK) as running, claude(running) as client:
        given = await message(client, stream, tools=[TOOL], tool_choice=choice, max_tokens=100)
    assert [block.type for block in given.content] == ["tool_use"]
    assert given.stop_reason == "tool_use"


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_found_in_the_prefix_cache_are_counted_apart(stream: bool) -> None:
    settings = SimSettings(itl_ms=0, tokens=4, prompt_tokens_details=True)
    async with gateway(settings) as running, claude(running) as client:
        asked = {"system": "word " * 200}
        before = (await message(client, stream, **asked)).usage
        after = (await message(client, stream, **asked)).usage
    assert before.cache_read_input_tokens == 0
    assert after.cache_read_input_tokens >= 100
    assert after.input_tokens + after.cache_read_input_tokens == before.input_tokens


# ---- what engines are sent ----


async def test_an_engine_is_asked_for_a_chat_whatever_the_query() -> None:
    async with gateway(QUICK) as running:
        cached = {"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}
        body = ASK | {"system": [cached]}
        assert (await running.send(body, MESSAGES + "?beta=true")).status == 200
        (seen,) = running.engines[0].stats().seen
    assert as_sent(seen["body"]) == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "Be short."}, *HI],
        "max_tokens": 16,
    }


async def test_a_vendor_is_sent_nothing_that_only_vllm_knows() -> None:
    member = Member(answers(200, {"model": "x", "choices": [{"message": {"content": "yes"}}]}))
    async with listening(member), gateway(others=[member.upstream(model="gpt")]) as running:
        turns = [*HI, {"role": "assistant", "content": [{"type": "thinking", "thinking": "?"}]}, *HI]
        body = ASK | {"top_k": 4, "thinking": {"type": "disabled"}, "messages": turns, "temperature": 0.5}
        answer = await running.send(body, MESSAGES)
    assert text_of(answer) == "yes"
    (seen,) = member.seen
    assert seen.path == CHAT
    assert seen.fields == {
        "model": "gpt",
        "messages": [*HI, {"role": "assistant", "content": ""}, *HI],
        "max_tokens": 16,
        "temperature": 0.5,
    }


@pytest.mark.parametrize(
    ("agent", "roles"),
    [
        ("claude-cli/2.1.0 (external, cli)", ["system", "user", "assistant", "user"]),
        ("other/1", ["system", "user", "assistant", "user"]),
    ],
)
async def test_a_recognised_clients_system_turns_stay_in_place(agent: str, roles: list[str]) -> None:
    turns = [
        *HI,
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "go on"},
        {"role": "system", "content": "It is late."},
    ]
    body = ASK | {"system": "Be short.", "messages": turns}
    async with gateway(QUICK) as running:
        assert (await running.send(body, MESSAGES, {"user-agent": agent})).status == 200
        (seen,) = running.engines[0].stats().seen
    messages = as_sent(seen["body"])["messages"]
    assert [each["role"] for each in messages] == roles
    is_first = "late" in messages[0]["content"]
    assert is_first is (agent == "other/1")
    assert ("late" in json.dumps(messages[-1])) is not is_first


# ---- caches ----


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("first", "second"), [(CHAT, MESSAGES), (MESSAGES, CHAT)])
async def test_a_text_asked_in_one_dialect_is_an_exact_hit_in_the_other(
    cache: LocalCache, first: str, second: str, stream: bool
) -> None:
    async with gateway(QUICK, handles=cache.handles, **cache.args) as running:
        body = ASK | {"temperature": 0}
        answer = await running.send(body | {"stream": not stream}, first)
        assert answer.headers["x-cache"] == "miss"
        hit = await running.send(body | {"stream": stream}, second)
        assert hit.headers["x-cache"] == "exact"
    chats, messages = (answer, hit) if first == CHAT else (hit, answer)
    assert text_of(messages) == chats.text != ""
    if second == MESSAGES and stream:
        usage = named_events(hit)[-2][1]["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (6, 9)
        assert named_events(hit)[-1][0] == "message_stop"


async def test_a_system_text_makes_another_question(cache: LocalCache) -> None:
    async with gateway(QUICK, handles=cache.handles, **cache.args) as running:
        body = ASK | {"temperature": 0}
        await running.send(body | {"system": "Be short."}, MESSAGES)
        other = await running.send(body, MESSAGES)
        blocks = [{"type": "text", "text": "Be short."}]
        same = await running.send(body | {"system": blocks}, MESSAGES)
        turns = [{"role": "system", "content": "Be short."}, *HI]
        as_chat = await running.send(body | {"messages": turns})
    assert other.headers["x-cache"] == "miss"
    assert same.headers["x-cache"] == as_chat.headers["x-cache"] == "exact"


async def test_clients_of_two_dialects_share_one_request_in_flight(cache: LocalCache) -> None:
    slow = SimSettings(itl_ms=10, tokens=30)
    async with gateway(slow, handles=cache.handles, **cache.args) as running:
        body = ASK | {"temperature": 0, "stream": True, "max_tokens": 40}
        async with running.stream("hi there", temperature=0, max_tokens=40) as first:
            begun = await first.event()
            joined = await running.send(body, MESSAGES)
            rest = await first.rest()
        assert joined.headers["x-cache"] == "joined"
        assert running.requests() == [1]
    chunks = [json.loads(event) for event in (begun, *rest.events[:-1])]
    assert not any(each.get("usage") for each in chunks), "this client asked for no usage"
    said = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)
    assert text_of(joined) == said != ""
    assert named_events(joined)[-2][1]["usage"]["output_tokens"] == 31


# ---- failures ----


async def test_another_replica_goes_on_with_a_message_whose_engine_died() -> None:
    settings = SimSettings(itl_ms=0, tokens=12)
    order = [{"priority": number} for number in range(2)]
    body = ASK | {"stream": True, "temperature": 0}
    async with gateway(settings, settings, upstreams=order) as running:
        undisturbed = await running.send(body, MESSAGES)
        await running.engines[0].set_faults(Faults(die_after=4))
        answer = await running.send(body, MESSAGES)
        assert (await running.traffic())["continued"] == 1
    assert text_of(answer) == text_of(undisturbed)
    assert [name for name, _ in named_events(answer)] == [name for name, _ in named_events(undisturbed)]
    assert named_events(answer)[-2][1]["usage"] == named_events(undisturbed)[-2][1]["usage"]


async def test_a_stream_that_breaks_ends_with_anthropics_error() -> None:
    member = Member(says(chunk("one"), chunk(" two"), then=cut))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send(ASK | {"stream": True}, MESSAGES)
        said: list[str] = []
        async with claude(running) as client:
            with pytest.raises(anthropic.APIStatusError, match="The engine failed: closed"):
                async with client.messages.stream(**ASK) as stream:
                    said.extend([text async for text in stream.text_stream])
    *_, (name, error) = named_events(answer)
    assert (name, error["error"]["type"]) == ("error", "api_error")
    assert error["request_id"] == answer.headers["request-id"]


async def test_an_engine_that_does_not_speak_chat_is_an_error_not_a_crash() -> None:
    member = Member(says(b"{]"))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send(ASK | {"stream": True}, MESSAGES)
    assert named_events(answer)[-1][1]["error"]["message"] == "The engine's answer is no chat completion."
    member = Member(answers(200, {"choices": []}))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send(ASK, MESSAGES)
    assert (answer.status, answer.json["error"]["type"]) == (502, "api_error")


def window(context: int, prompt: int) -> Answer:
    """An engine of that context, which refuses as vLLM 0.29 does. All in tokens."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = (await request.json()).get("max_tokens", 0)
        if asked > context:
            said = f"max_tokens={asked} cannot be greater than max_model_len=max_total_tokens={context}."
        elif prompt + asked > context:
            said = (
                f"This model's maximum context length is {context} tokens. However, you requested {asked} "
                f"output tokens and your prompt contains at least {context - asked + 1} input tokens, for a "
                f"total of at least {context + 1} tokens. Please reduce the length of the input prompt."
            )
        else:
            return web.json_response({"model": "x", "choices": [{"message": {"content": "yes"}}]})
        return web.json_response({"error": {"message": said, "code": 400}}, status=400)

    return answer


@pytest.mark.parametrize("max_tokens", [90, 32_000])
async def test_a_limit_above_the_context_is_capped_to_what_the_prompt_leaves(max_tokens: int) -> None:
    member = Member(window(context=100, prompt=20))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send(ASK | {"max_tokens": max_tokens}, MESSAGES)
        plain = await running.post("hi", max_tokens=max_tokens)
    assert text_of(answer) == "yes"
    assert [seen.fields.get("max_tokens") for seen in member.seen] == [max_tokens, None, max_tokens]
    assert plain.status == 400  # OpenAI's clients are told


async def test_a_limit_above_a_known_context_costs_no_refusal() -> None:
    member = Member(window(context=100, prompt=20), context=100)
    async with listening(member), gateway(others=[member.upstream(kind="vllm")]) as running:
        answer = await running.send(ASK | {"max_tokens": 32_000}, MESSAGES)
    assert text_of(answer) == "yes"
    assert len(member.seen) == 1


@pytest.mark.parametrize("max_tokens", [16, 32_000])
async def test_a_prompt_above_the_context_is_refused_in_the_words_that_agents_compact_on(
    max_tokens: int,
) -> None:
    member = Member(window(context=100, prompt=200))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send(ASK | {"max_tokens": max_tokens}, MESSAGES)
    error = answer.json["error"]
    assert (answer.status, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == "prompt is too long: 101 tokens > 100 maximum"


async def test_a_wrong_field_is_named_in_anthropics_form() -> None:
    async with gateway(QUICK) as running:
        answer = await running.send({name: ASK[name] for name in ("model", "messages")}, MESSAGES)
        assert running.requests() == [0]
    assert answer.status == 400
    assert answer.json["error"] == {
        "type": "invalid_request_error",
        "message": "Missing required field `max_tokens`.",
    }


# ---- keys ----


async def test_the_key_is_taken_from_either_header() -> None:
    async with gateway(QUICK, tenants=["a"]) as running:
        key = running.keys["a"]
        async with claude(running, key) as client:
            assert (await message(client, False)).content
        for headers in (
            {"authorization": f"Bearer {key}"},
            {"x-api-key": key, "anthropic-version": "2023-06-01"},
        ):
            assert (await running.send(ASK, MESSAGES, headers)).status == 200
        answer = await running.send(ASK, MESSAGES, {"x-api-key": "sk-wrong"})
    assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")


async def test_each_tenants_prefixes_have_a_salt_of_their_own() -> None:
    async with gateway(QUICK, tenants=["a", "b"]) as running:
        for tenant in ("a", "b", "a"):
            own = ASK | {"cache_salt": "x"}
            assert (await running.send(own, MESSAGES, running.headers(tenant))).status == 200
        first, second, third = (
            json.loads(seen["body"])["cache_salt"] for seen in running.engines[0].stats().seen
        )
    assert first == third
    assert len({first, second, "x"}) == 3


# ---- the size of a conversation ----


async def test_a_conversation_may_be_longer_than_other_bodies() -> None:
    limits = {"max_body_bytes": 2000, "max_conversation_bytes": 20_000, "max_held_bytes_per_tenant": 50_000}
    async with gateway(QUICK, limits=limits) as running:
        long = [{"role": "user", "content": "x" * 10_000}]
        assert (await running.send(ASK | {"prompt": "x" * 10_000}, "/v1/completions")).status == 413
        assert (await running.send(ASK | {"messages": long})).status == 200
        assert (await running.send(ASK | {"messages": long}, MESSAGES)).status == 200
        longer = [{"role": "user", "content": "x" * 21_000}]
        answer = await running.send(ASK | {"messages": longer}, MESSAGES)
    assert (answer.status, answer.json["error"]["type"]) == (413, "request_too_large")
    assert "limits.max_conversation_bytes" in answer.json["error"]["message"]


@pytest.mark.parametrize(("mib", "status"), [(31, 400), (33, 413)])
async def test_a_body_of_32_mib_is_read_to_its_end(mib: int, status: int) -> None:
    """Only then does it show that the image is none."""
    image = {"type": "base64", "media_type": "image/png", "data": "A" * (mib << 20)}
    content = [{"type": "image", "source": image}, {"type": "text", "text": "What is it?"}]
    body = io.BytesIO(json.dumps(ASK | {"messages": [{"role": "user", "content": content}]}).encode())
    async with gateway(QUICK) as running, asyncio.timeout(10):
        headers = {"content-type": "application/json"}
        async with running.http.post(MESSAGES, data=body, headers=headers) as response:
            assert response.status == status, await response.read()


async def test_the_bytes_of_a_tenants_bodies_are_bounded_until_their_answers_end() -> None:
    limits = {"max_conversation_bytes": 20_000, "max_held_bytes_per_tenant": 25_000}
    long = ASK | {"messages": [{"role": "user", "content": "x" * 15_000}], "stream": True}
    slow = SimSettings(itl_ms=20, tokens=10_000)
    async with gateway(slow, limits=limits, tenants=["a", "b"]) as running:
        headers = running.headers("a")
        endless = long | {"max_tokens": 10_000}
        async with running.http.post(MESSAGES, json=endless, headers=headers) as first:
            assert first.status == 200
            refused = await running.send(long, MESSAGES, headers)
            assert refused.status == 429
            assert "limits.max_held_bytes_per_tenant" in refused.json["error"]["message"]
            other = await running.send(long | {"max_tokens": 1}, MESSAGES, running.headers("b"))
            assert other.status == 200
            first.close()
        await running.until_idle()
        assert (await running.send(long | {"max_tokens": 1}, MESSAGES, headers)).status == 200


# ---- counting tokens ----


async def test_tokens_are_counted_by_the_engines_own_tokenizer() -> None:
    member = Member(answers(200, {"count": 42, "max_model_len": 100, "tokens": [1]}))
    asked: Any = {"messages": HI, "system": "Be short.", "tools": [TOOL]}
    async with (
        listening(member),
        gateway(others=[member.upstream(kind="vllm")]) as running,
        claude(running) as client,
    ):
        counted = await client.messages.count_tokens(model=MODEL, **asked)
    assert counted.input_tokens == 42
    (seen,) = member.seen
    assert seen.path == "/tokenize"
    function = {name: TOOL[name] for name in ("name", "description")} | {"parameters": TOOL["input_schema"]}
    assert as_sent(seen.body) == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "Be short."}, *HI],
        "tools": [{"type": "function", "function": function}],
    }


async def test_an_image_that_is_counted_is_checked_like_one_that_is_asked_about() -> None:
    member = Member(answers(200, {"count": 42}))
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    turns = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    async with listening(member), gateway(others=[member.upstream(kind="vllm")]) as running:
        counted = await running.send({"model": MODEL, "messages": turns}, COUNT)
    assert (counted.status, member.seen) == (400, [])


async def test_a_vendors_model_counts_no_tokens_but_answers_messages() -> None:
    member = Member(says(chunk("yes"), chunk("", finish_reason="stop"), DONE))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        counted = await running.send({"model": MODEL, "messages": HI}, COUNT)
        answer = await running.send(ASK | {"stream": True}, MESSAGES)
    assert (counted.status, counted.json["error"]["type"]) == (404, "not_found_error")
    assert text_of(answer) == "yes"


async def test_anthropics_client_reads_the_list_of_models() -> None:
    async with gateway() as running, claude(running) as client:
        listed = [card async for card in client.models.list()]
        assert [(card.id, card.type, card.display_name) for card in listed] == [(MODEL, "model", MODEL)]
        one = await client.models.retrieve(MODEL)
        assert one == listed[0]
        assert one.created_at.tzinfo is not None
        with pytest.raises(anthropic.NotFoundError):
            await client.models.retrieve("nobody")
