"""`config/local.yaml` with the official client: a real model, end to end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import openai
import pytest
from support.bad_input import BAD_REQUESTS, BadRequestCase, raw_request
from support.collector import Collector
from support.graph import eventually
from support.server import MODEL, Server, get_json

from deployments.launcher import status as launcher_status
from deployments.launcher.processes import descendants, describe

CHAT = "/v1/chat/completions"
FRANCE = "What is the capital of France?"
CONNECTED = "03"
"""The state of a socket in ``/proc/net/unix``."""


def messages(text: str, system: str | None = None) -> list[Any]:
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]


def ask(client: openai.OpenAI, text: str, *, system: str | None = None, **fields: Any) -> tuple[str, str]:
    """The value of ``x-cache`` and the answer's text."""
    headers = fields.pop("headers", None)
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=messages(text, system),
        extra_headers=headers,
        **{"temperature": 0, "max_tokens": 64, **fields},
    )
    return raw.headers["x-cache"], raw.parse().choices[0].message.content or ""


def stream_text(client: openai.OpenAI, text: str, **fields: Any) -> str:
    stream = client.chat.completions.create(
        model=MODEL, messages=messages(text), temperature=0, stream=True, **{"max_tokens": 64, **fields}
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def raw_stream(url: str, text: str) -> tuple[str, list[dict[str, Any]], str]:
    """``x-cache``, the decoded chunks, and the last event of a stream."""
    body = {"model": MODEL, "messages": messages(text), "temperature": 0, "max_tokens": 64, "stream": True}
    body["stream_options"] = {"include_usage": True}
    request = urllib.request.Request(
        url + CHAT, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        *events, last = response.read().decode().strip().split("\n\n")
        return response.headers["x-cache"], [json.loads(event[6:]) for event in events], last


def wait_stored(server: Server, at_least: int) -> None:
    deadline = time.monotonic() + 10
    while get_json(f"{server.url}/admin/cache")["entries"] < at_least:
        assert time.monotonic() < deadline, "the answer was not stored"
        time.sleep(0.05)


def test_haproxy_reaches_the_gateway_by_a_unix_socket(served: Server) -> None:
    get_json(f"{served.url}/v1/models")
    (proxy, *_) = [pid for pid in descendants(served.process.pid) if describe(pid).startswith("haproxy ")]
    environment = Path(f"/proc/{proxy}/environ").read_text().split("\0")
    (folder,) = [each.removeprefix("TMPDIR=") for each in environment if each.startswith("TMPDIR=")]
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    doors = [each for each in sockets if each[-1].startswith(f"{folder}/promptly-door-")]
    assert CONNECTED in {each[5] for each in doors}


def test_the_capital_of_france_is_paris_and_then_comes_from_the_cache(
    client: openai.OpenAI, served: Server
) -> None:
    status, live = ask(client, FRANCE)
    assert (status, "Paris" in live) == ("miss", True)
    wait_stored(served, 1)
    assert ask(client, FRANCE) == ("exact", live)
    assert ask(client, "Can you tell me the capital of France?") == ("semantic", live)


def test_the_capital_of_spain_is_not_frances_answer(client: openai.OpenAI) -> None:
    status, answer = ask(client, "What is the capital of Spain?")
    assert status == "miss"
    assert answer != ask(client, FRANCE)[1]


def test_another_system_prompt_is_another_partition(client: openai.OpenAI) -> None:
    assert ask(client, FRANCE, system="You are a pirate.")[0] == "miss"


def test_a_streamed_answer_equals_one_that_is_not(client: openai.OpenAI) -> None:
    question = "Name three colours of the rainbow."
    no_store = {"cache-control": "no-store"}
    streamed = stream_text(client, question, extra_headers=no_store)
    status, whole = ask(client, question, headers=no_store)
    assert status == "miss"
    assert streamed == whole != ""


def test_no_store_and_no_cache_do_what_they_say(client: openai.OpenAI) -> None:
    question = "What is the capital of Portugal?"
    assert ask(client, question, headers={"cache-control": "no-store"})[0] == "miss"
    assert ask(client, question)[0] == "miss"
    assert ask(client, question)[0] == "exact"
    assert ask(client, question, headers={"cache-control": "no-cache"})[0] == "miss"


def test_a_cached_stream_is_shaped_like_a_live_one(served: Server) -> None:
    question = "What is the capital of Italy?"
    live_status, live, live_last = raw_stream(served.url, question)
    cached_status, cached, cached_last = raw_stream(served.url, question)
    assert (live_status, cached_status) == ("miss", "exact")
    assert live_last == cached_last == "data: [DONE]"
    assert text_of(live) == text_of(cached) != ""
    # What the engine had of the prompt is said of its own answer alone.
    assert live[-1]["usage"].pop("prompt_tokens_details")["cached_tokens"] >= 0
    assert live[-1]["usage"] == cached[-1]["usage"]
    for position in (0, 1, -2, -1):  # role, content, finish, usage
        assert shape(live[position]) == shape(cached[position]), position


def test_a_stream_tells_at_its_end_where_its_time_went(served: Server) -> None:
    """vLLM's own part comes from vLLM, and the parts are what this client measures."""
    body = {"model": MODEL, "messages": messages("Count to ten."), "max_tokens": 32, "stream": True}
    headers = {"content-type": "application/json", "x-debug-timing": "1", "cache-control": "no-store"}
    request = urllib.request.Request(served.url + CHAT, json.dumps(body).encode(), headers, method="POST")
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as response:
        *_, done, comment = response.read().decode().strip().split("\n\n")
    took_ms = (time.perf_counter() - began) * 1000
    assert done == "data: [DONE]"
    steps = {name: float(value) for name, value in re.findall(r"([a-z-]+);dur=([0-9.]+)", comment)}
    assert {"admit", "route", "engine-queue", "prefill", "decode"} <= steps.keys()
    assert 0 < steps["prefill"] <= steps["upstream-ttft"]
    assert 0 < steps["decode"] < steps["total"]
    assert steps["overhead"] + steps["upstream-ttft"] + steps["upstream"] == pytest.approx(took_ms, rel=0.1)


def shape(chunk: dict[str, Any]) -> Any:
    """Keys in order, with null, text and number told apart; what is inside differs from stream to stream."""
    if isinstance(chunk, dict):
        return [(key, shape(value)) for key, value in chunk.items()]
    if isinstance(chunk, list):
        return [shape(value) for value in chunk]
    return type(chunk).__name__


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])


def test_one_trace_reaches_from_the_client_into_vllm(client: openai.OpenAI, collector: Collector) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    text = "What does a trace of this request hold?"
    client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        max_tokens=4,
        extra_headers={"traceparent": f"00-{trace}-{parent}-01"},
    )
    expected = {"POST /v1/chat/completions", "embedder.embed", "cache.look_up", "upstream", "llm_request"}
    deadline = time.monotonic() + 60
    while not expected <= {span.name for span in collector.trace(trace)}:
        assert time.monotonic() < deadline, [span.name for span in collector.trace(trace)]
        time.sleep(0.2)
    spans = {span.name: span for span in collector.trace(trace)}
    root = spans["POST /v1/chat/completions"]
    assert root.parent_span_id.hex() == parent
    assert spans["llm_request"].parent_span_id == root.span_id
    assert text not in str(collector.spans)


def test_a_kept_trace_has_all_parts_although_its_caller_left_it_out(
    client: openai.OpenAI, collector: Collector
) -> None:
    root, engine = "POST /v1/chat/completions", "llm_request"
    expected = {root, engine, "engine-queue", "prefill", "decode"}
    deadline = time.monotonic() + 120
    spans: dict[str, Any] = {}
    for number in range(1, 6):
        trace, parent = f"{number:032x}", "c7ad6b7169203331"
        client.chat.completions.create(  # one of the slowest of its minute
            model=MODEL,
            messages=[{"role": "user", "content": f"Tell story {number} of a trace that no one wanted."}],
            max_tokens=200,
            extra_body={"ignore_eos": True},
            extra_headers={"traceparent": f"00-{trace}-{parent}-00"},
        )
        until = min(deadline, time.monotonic() + 20)
        while not expected <= spans.keys() and time.monotonic() < until:
            time.sleep(0.2)
            spans = {span.name: span for span in collector.trace(trace)}
        if expected <= spans.keys() or time.monotonic() >= deadline:
            break
    assert expected <= spans.keys()
    assert spans[engine].parent_span_id == spans[root].span_id


def test_a_whole_cached_answer_has_the_keys_of_a_live_one(client: openai.OpenAI) -> None:
    question = "What is the capital of Japan?"
    fields: dict[str, Any] = {
        "model": MODEL,
        "messages": messages(question),
        "temperature": 0,
        "max_tokens": 64,
    }
    live = client.chat.completions.create(**fields)
    cached = client.chat.completions.create(**fields)
    assert live.choices[0].message.content == cached.choices[0].message.content
    assert live.usage is not None
    assert live.usage.prompt_tokens_details is not None
    assert cached.usage == live.usage.model_copy(update={"prompt_tokens_details": None})
    assert live.choices[0].finish_reason == cached.choices[0].finish_reason == "stop"


def test_text_completions_stream_and_come_from_the_cache(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {
        "model": MODEL,
        "prompt": "The capital of France is",
        "stop": ["."],
        "max_tokens": 16,
        "temperature": 0,
    }
    first = client.completions.with_raw_response.create(**fields)
    second = client.completions.with_raw_response.create(**fields)
    assert [raw.headers["x-cache"] for raw in (first, second)] == ["miss", "exact"]
    assert first.parse().choices[0].text == second.parse().choices[0].text
    assert "Paris" in first.parse().choices[0].text
    streamed = client.completions.create(**fields, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == second.parse().choices[0].text


def test_n_logprobs_stop_tools_and_response_format_pass_through(client: openai.OpenAI) -> None:
    create = client.chat.completions.with_raw_response.create
    common: dict[str, Any] = {"model": MODEL, "messages": messages("Say hello."), "max_tokens": 8}
    several = create(**common, n=2, temperature=0.5)
    assert several.headers["x-cache"] == "bypass"
    assert len(several.parse().choices) == 2
    scored = create(**common, logprobs=True, top_logprobs=2, temperature=0)
    assert scored.headers["x-cache"] == "bypass"
    logprobs = scored.parse().choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    assert len(logprobs.content[0].top_logprobs) == 2
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    shaped = create(
        **common | {"max_tokens": 32},
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        temperature=0,
    )
    assert isinstance(json.loads(shaped.parse().choices[0].message.content or "")["ok"], bool)
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    with_tools = create(**common, tools=[{"type": "function", "function": function}], tool_choice="none")
    assert with_tools.headers["x-cache"] == "bypass"
    stopped = create(**common | {"messages": messages("Count: 1 2 3")}, stop=["2"], temperature=0)
    assert "2" not in (stopped.parse().choices[0].message.content or "")


def test_embeddings_through_the_official_client(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="all-MiniLM-L6-v2", input=["a cat", "a kitten"])
    first, second = (item.embedding for item in answer.data)
    assert len(first) == 384
    assert 0.5 < sum(a * b for a, b in zip(first, second, strict=True)) < 1
    assert answer.usage.total_tokens == 8


def test_vllm_computes_a_document_anew_under_another_salt(client: openai.OpenAI) -> None:
    """A tenant's salt is made of its name and of what its client gives as `cache_salt`."""
    document = " ".join(f"Clause {number} is about water." for number in range(80))

    def cached(salt: str) -> int:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=messages(document),
            max_tokens=1,
            extra_body={"cache_salt": salt},
            extra_headers={"cache-control": "no-store"},
        )
        assert answer.usage is not None
        details = answer.usage.prompt_tokens_details
        return 0 if details is None else details.cached_tokens or 0

    found = [cached(salt) for salt in ("one", "one", "two", "two")]
    assert (found[0], found[2]) == (0, 0)
    assert min(found[1], found[3]) > 300


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL, "all-MiniLM-L6-v2"]


def test_usage_comes_only_when_asked_for(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {
        "model": MODEL,
        "messages": messages("Say yes."),
        "max_tokens": 4,
        "stream": True,
        "extra_body": {"ignore_eos": True},
    }
    plain = list(client.chat.completions.create(**fields))
    assert all(chunk.usage is None and chunk.choices for chunk in plain)
    asked = list(client.chat.completions.create(**fields, stream_options={"include_usage": True}))
    assert asked[-1].usage is not None
    assert asked[-1].usage.completion_tokens == 4


def test_a_prompt_longer_than_the_context_is_a_400(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="4096"):
        ask(client, "word " * 9000)
    assert ask(client, FRANCE)[0] == "exact"


@pytest.mark.parametrize("case", BAD_REQUESTS, ids=lambda case: case.name)
def test_bad_input_gets_a_clear_error_behind_haproxy(served: Server, case: BadRequestCase) -> None:
    headers = {"content-type": "application/json"} | case.headers
    request = urllib.request.Request(served.url + case.path, case.body(MODEL), headers, method=case.method)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    assert caught.value.code == case.status
    assert json.load(caught.value)["error"]["param"] == case.param
    assert get_json(f"{served.url}/health") == {"status": "ok", "cache": "ok"}


@pytest.mark.parametrize(
    "header", [b"x-strange", b"x-request-id", b"x-session-id", b"authorization", b"traceparent"]
)
async def test_a_header_that_is_no_utf8_is_a_400(served: Server, header: bytes) -> None:
    status, body = await raw_request(served.url + CHAT, header + b": \xff\xfe\r\n", b"{}")
    assert status == 400
    assert json.loads(body)["error"]["param"] == header.decode()


def test_a_gateway_answers_without_serves_wrapper(served: Server) -> None:
    """Serve's wrapper would send an empty id back. In an application's first seconds HAProxy still asks
    Serve's fallback proxy, which is not ours."""
    deadline = time.monotonic() + 30
    request = urllib.request.Request(f"{served.url}/v1/models", headers={"x-request-id": ""})
    while True:
        with urllib.request.urlopen(request, timeout=30) as response:
            if len(response.headers["x-request-id"]) == 32:
                return
        assert time.monotonic() < deadline, "requests still go through Serve's wrapper"
        time.sleep(0.25)


def test_what_is_written_is_this_users_alone(served: Server, store: Path) -> None:
    tree = [served.process.pid]
    for pid in tree:  # it grows as it is walked
        tree += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    status = [Path(f"/proc/{pid}/status").read_text() for pid in tree]
    assert len(status) > 1
    assert all("Umask:\t0077" in each for each in status if "State:\tZ" not in each)
    (shard,) = store.iterdir()
    files = [shard, *(each for each in shard.rglob("*") if not each.is_symlink())]
    assert [each for each in files if each.stat().st_mode & 0o077] == []


async def test_the_private_engine_port_answers_403(served: Server) -> None:
    fleet = get_json(f"{served.url}/admin/fleet")
    async with aiohttp.ClientSession() as http:
        for path in ("/v1/models", "/health", "/metrics", CHAT):
            async with http.get(fleet[MODEL][0]["url"] + path) as response:
                assert response.status == 403


@pytest.mark.parametrize("first_chunk_seen", [False, True])
async def test_a_client_that_hangs_up_aborts_the_engine(served: Server, first_chunk_seen: bool) -> None:
    body = {
        "model": MODEL,
        "messages": messages("Tell me a very long story."),
        "stream": True,
        "max_tokens": 2000,
    }
    async with aiohttp.ClientSession() as http:
        response = await http.post(served.url + CHAT, json=body, headers={"cache-control": "no-store"})
        if first_chunk_seen:
            await response.content.readany()
        assert await eventually(lambda: running(served, 1), within_s=10)
        response.close()
        # It takes a quarter of a second (scripts/benchmarks/start.py measures it), the age of a report; the
        # bound leaves room for a busy machine, and without an abort the story goes on for a minute.
        assert await eventually(lambda: running(served, 0), within_s=5)


async def running(served: Server, count: int) -> bool:
    fleet = await asyncio.to_thread(get_json, f"{served.url}/admin/fleet")
    return bool(fleet[MODEL][0]["running"] == count)


def guided(grammar: str) -> dict[str, Any]:
    return {"structured_outputs": {"grammar": grammar}}


def schema(maximum: int) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "maximum": maximum}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": number}}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"top_k": 2**64}, id="an integer of more than 64 bits"),
        pytest.param({"vllm_xargs": {"a": 2**64}}, id="the same, further in"),
        pytest.param(schema(2**64), id="the same in a schema"),
        pytest.param(schema(2**63), id="a bound that xgrammar does not know"),
        pytest.param(guided("root ::= root"), id="a grammar that fits no text"),
        pytest.param(guided("start: /[a-z]{1,1000000}/"), id="a grammar that is too large"),
    ],
)
async def test_what_the_engine_cannot_take_is_the_clients_fault_and_takes_no_place_in_it(
    client: openai.OpenAI, served: Server, fields: dict[str, Any], stream: bool
) -> None:
    def read_to_its_end() -> None:
        list(
            client.chat.completions.create(
                model=MODEL, messages=messages("hi"), max_tokens=2, stream=stream, extra_body=fields
            )
        )

    with pytest.raises(openai.APIError) as caught:
        read_to_its_end()
    status = getattr(caught.value, "status_code", None) or int(caught.value.code or 0)
    assert status == 400, caught.value
    assert await eventually(lambda: running(served, 0), within_s=5)


async def test_a_client_that_leaves_after_two_writes_aborts_the_engine(served: Server) -> None:
    """As httpx sends: the head, then the body."""
    fields = {"model": MODEL, "messages": messages("Tell me a very long story."), "max_tokens": 2000}
    body = json.dumps(fields).encode()
    address = urlsplit(served.url)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
    head += f"cache-control: no-store\r\ncontent-length: {len(body)}\r\n\r\n"
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(head.encode())
    await writer.drain()
    await asyncio.sleep(0.02)  # the second write has to be a second packet
    writer.write(body)
    assert await eventually(lambda: running(served, 1), within_s=10)
    writer.close()
    assert await eventually(lambda: running(served, 0), within_s=5)


def haproxies(served: Server) -> set[int]:
    """Of this start, those included that finish their last requests after a reload."""
    return {pid for pid in descendants(served.process.pid) if describe(pid).startswith("haproxy ")}


async def test_a_killed_haproxy_is_back_within_two_seconds(served: Server) -> None:
    async def answers() -> bool:
        return launcher_status.answers(f"{served.url}/v1/models")

    killed = haproxies(served)
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert await eventually(answers, within_s=2)
    assert not killed & haproxies(served)


def test_a_deadline_is_kept_by_the_real_engine(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        ask(
            client,
            "Tell me a very long story.",
            max_tokens=2000,
            headers={"x-request-timeout-ms": "300", "cache-control": "no-store"},
        )
    assert caught.value.status_code == 504


def test_concurrent_streams_are_all_complete(client: openai.OpenAI) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        texts = list(
            pool.map(lambda n: stream_text(client, f"Count from {n} to 9.", max_tokens=16), range(8))
        )
    assert all(texts)
