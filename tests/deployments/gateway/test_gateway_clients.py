"""The real clients, over real HTTP: an answer that broke is an exception to them, never a shorter answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web
from scripted_member import Answer, Member, answers, begin, cut, listening, stall
from support.gateway import DONE, MODEL, Running, SimSettings, gateway
from support.graph import CHAT

WORDS = ("one", " two")

Ending = Callable[[web.Request], Coroutine[Any, Any, None]]


async def end(_: web.Request) -> None:
    """The server says that the answer is over, although it is not."""


def named(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def data(*events: bytes) -> bytes:
    return b"".join(b"data: " + event + b"\n\n" for event in events)


def chunk(**choice: Any) -> dict[str, Any]:
    choices = [{"index": 0, "finish_reason": None, "delta": {}, **choice}]
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": choices}


def unnamed(*events: dict[str, Any]) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def chat_begin() -> bytes:
    """What an engine sends whose client asked for a message or a response."""
    return unnamed(*[chunk(delta={"content": word}) for word in WORDS])


def chat_end() -> bytes:
    return unnamed(chunk(finish_reason="stop")) + b"data: [DONE]\n\n"


def streams(first: bytes, then: Ending = end, last: bytes = b"") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        await response.write(first)
        await then(request)
        if last:
            await response.write(last)
        return response

    return answer


@asynccontextmanager
async def serving(answer: Answer, **args: Any) -> AsyncIterator[Running]:
    member = Member(answer)
    async with listening(member):
        others = [member.upstream(kind="vllm", health_period_s=60.0)]
        async with gateway(others=others, **args) as running:
            yield running


@asynccontextmanager
async def claude(running: Running, key: str = "none") -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=running.url, api_key=key, max_retries=0) as client:
        yield client


@asynccontextmanager
async def gpt(running: Running, retries: int = 0) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{running.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=retries) as client:
        yield client


HI = [{"role": "user", "content": "hi"}]
MESSAGE: dict[str, Any] = {"model": MODEL, "max_tokens": 16, "messages": HI}


async def said_by_claude(
    client: anthropic.AsyncAnthropic,
    said: list[str],
    heard: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    async with client.messages.stream(**MESSAGE, **options) as stream:
        async for text in stream.text_stream:
            said.append(text)
            if len(said) == len(WORDS):
                heard()


async def said_by_gpt(client: openai.AsyncOpenAI, said: list[Any], **options: Any) -> None:
    async for event in await client.responses.create(model=MODEL, input="hi", stream=True, **options):
        said.append(event)


FAILURES = {
    "the connection breaks": (cut, {}, {}, "The engine failed: closed."),
    "it ends too early": (end, {}, {}, "The engine's stream ended too early."),
    "nothing more comes": (
        stall,
        {"limits": {"between_tokens_timeout_s": 0.2}},
        {},
        "The engine sent nothing for 0.2 s (limits.between_tokens_timeout_s).",
    ),
    "the deadline passes": (
        stall,
        {},
        {"extra_headers": {"x-request-timeout-ms": "300"}},
        "No complete answer within 0.3 s (x-request-timeout-ms).",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_anthropics_client_raises_for_a_stream_that_breaks(name: str) -> None:
    then, args, options, message = FAILURES[name]
    said: list[str] = []
    async with serving(streams(chat_begin(), then), **args) as running, claude(running) as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await said_by_claude(client, said, **options)
    assert said == list(WORDS)
    error = caught.value.body
    assert isinstance(error, dict)
    assert (error["type"], error["error"]["message"]) == ("error", message)
    assert error["request_id"] == caught.value.request_id


@pytest.mark.parametrize("name", FAILURES)
async def test_openais_client_raises_for_a_response_that_breaks(name: str) -> None:
    then, args, options, message = FAILURES[name]
    said: list[Any] = []
    async with serving(streams(chat_begin(), then), **args) as running, gpt(running) as client:
        with pytest.raises(openai.APIError, match=re.escape(message)):
            await said_by_gpt(client, said, **options)
    deltas = [event for event in said if event.type == "response.output_text.delta"]
    assert [event.delta for event in deltas] == list(WORDS)


async def test_the_error_event_of_a_response_goes_on_counting() -> None:
    async with serving(streams(chat_begin(), cut)) as running:
        answer = await running.send({"model": MODEL, "input": "hi", "stream": True}, "/v1/responses")
    ends = [each.split(b"\n") for each in answer.body.split(b"\n\n")[-3:-1]]
    events = [(name, json.loads(data.removeprefix(b"data: "))) for name, data in ends]
    assert [(name, event["sequence_number"]) for name, event in events] == [
        (b"event: response.failed", 6),
        (b"event: error", 7),
    ]
    assert events[0][1]["response"]["id"].startswith("resp_")


@pytest.mark.parametrize("then", [end, cut], ids=["ends", "breaks behind its end"])
async def test_a_complete_stream_is_a_complete_answer(then: Ending) -> None:
    said: list[Any] = []
    async with (
        serving(streams(chat_begin() + chat_end(), then)) as running,
        claude(running) as client,
    ):
        await said_by_claude(client, said)
    assert said == list(WORDS)
    said = []
    whole = chat_begin() + chat_end()
    async with serving(streams(whole, then)) as running, gpt(running) as client:
        await said_by_gpt(client, said)
    assert said[-1].type == "response.completed"


async def test_an_engines_own_error_in_a_stream_is_passed_on() -> None:
    own = data(b'{"error":{"message":"of its own","type":"InternalServerError","code":500}}', DONE)
    async with serving(streams(chat_begin() + own)) as running, claude(running) as client:
        with pytest.raises(anthropic.APIStatusError, match="of its own") as caught:
            await said_by_claude(client, [], extra_headers={"x-failover": "off"})
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["request_id"] == caught.value.request_id


VLLMS_OWN = {"type": "error", "error": {"type": "BadRequestError", "message": "max_tokens is wrong"}}


async def test_http_errors_of_messages_are_anthropics() -> None:
    limits = {"max_conversation_bytes": 2000}
    async with serving(answers(400, VLLMS_OWN), limits=limits, tenants=["a"]) as running:
        async with claude(running, running.keys["a"]) as client:
            with pytest.raises(anthropic.BadRequestError, match="max_tokens is wrong") as refused:
                await client.messages.create(**MESSAGE)
            with pytest.raises(anthropic.NotFoundError, match="Known models: sim"):
                await client.messages.create(**MESSAGE | {"model": "nope"})
            with pytest.raises(anthropic.NotFoundError):
                await client.messages.count_tokens(model="nope", messages=MESSAGE["messages"])
            with pytest.raises(anthropic.RequestTooLargeError):
                await client.messages.create(**MESSAGE, system="x" * 3000)
        async with claude(running, "wrong") as client:
            with pytest.raises(anthropic.AuthenticationError) as unknown:
                await client.messages.create(**MESSAGE)
    for caught, kind in ((refused, "invalid_request_error"), (unknown, "authentication_error")):
        body = caught.value.body
        assert isinstance(body, dict)
        assert (body["type"], body["error"]["type"]) == ("error", kind)
        assert body["request_id"] == caught.value.request_id


async def test_a_full_gateway_is_a_rate_limit_to_anthropics_client() -> None:
    release = asyncio.Event()

    async def wait(_: web.Request) -> None:
        await release.wait()

    answer = streams(chat_begin(), wait, chat_end())
    limits = {"max_concurrent_requests": 1}
    async with (
        serving(answer, limits=limits) as running,
        claude(running) as client,
        client.messages.stream(**MESSAGE) as stream,
    ):
        await anext(aiter(stream))
        with pytest.raises(anthropic.RateLimitError) as caught:
            await client.messages.create(**MESSAGE)
        release.set()
        assert await stream.get_final_text() == "".join(WORDS)
    headers = caught.value.response.headers
    assert (headers["retry-after"], headers["x-should-retry"]) == ("1", "true")


async def test_a_deadline_that_passed_is_not_tried_again() -> None:
    member = Member(stall)
    async with listening(member):
        others = [member.upstream(kind="vllm", health_period_s=60.0)]
        async with gateway(others=others) as running, gpt(running, retries=2) as client:
            headers = {"x-request-timeout-ms": "200"}
            with pytest.raises(openai.InternalServerError) as caught:
                await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}], extra_headers=headers
                )
    assert caught.value.status_code == 504
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(member.seen) == 1


async def test_an_upload_is_told_that_it_is_not_relayed() -> None:
    async with gateway(SimSettings()) as running, gpt(running) as client:
        with pytest.raises(openai.APIStatusError, match="Uploads are not relayed") as caught:
            await client.images.edit(model=MODEL, image=("a.png", b"PNG"), prompt="bluer")
    assert (caught.value.status_code, caught.value.param) == (415, "content-type")


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_a_compressed_body_is_told_that_nothing_is_unpacked(path: str) -> None:
    async with gateway(SimSettings()) as running:
        sent = {"content-type": "application/json", "content-encoding": "gzip"}
        async with running.http.post(path, data=gzip.compress(b"{}"), headers=sent) as answer:
            error = (await answer.json())["error"]
            assert answer.status == 415
        sent["content-encoding"] = "identity"
        async with running.http.post(path, data=b"{}", headers=sent) as answer:
            assert answer.status == 400
    assert "`Content-Encoding` is 'gzip'" in error["message"]


def cancel_requests() -> None:
    """As uvicorn does with what still runs when its patience at a stop is over."""
    for task in asyncio.all_tasks():
        if getattr(task.get_coro(), "__name__", "") == "run_asgi":
            task.cancel()


async def test_a_stream_that_the_gateways_end_cuts_is_told_so() -> None:
    said: list[str] = []
    async with serving(streams(chat_begin(), stall)) as running, claude(running) as client:
        with pytest.raises(anthropic.APIStatusError, match="The gateway is shutting down"):
            await said_by_claude(client, said, cancel_requests)
    assert said == list(WORDS)


async def test_a_chat_that_the_gateways_end_cuts_is_told_so() -> None:
    async with gateway(SimSettings(itl_ms=5, tokens=1000)) as running, running.stream("hi") as stream:
        await stream.event()
        cancel_requests()
        cut_short = await stream.rest()
    assert cut_short.cut["code"] == "shutting_down"
