"""The simulated engine: text that can be continued, counters, and every way to go wrong."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.load import Client, Request, Sample
from sim_engine import (
    BLOCK,
    EOS,
    NO_FAULTS,
    Faults,
    SimEngine,
    SimSettings,
    Stats,
    detokenise,
    parse_faults,
    render_chat,
)

from serve_app.openai import replay, sse
from serve_app.openai.answers import Answer, Usage
from serve_app.openai.requests import Endpoint

LIMIT_S = 10.0
FAST = SimSettings(itl_ms=1.0, tokens=12)
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
LONG = "Tell me a story about the sea. " * 20
HOLD = {"x-sim-fault": "hang_before"}


@dataclass
class Sim:
    """A running engine, and a client of it."""

    engine: SimEngine
    url: str
    client: Client

    async def send(self, path: str, headers: dict[str, str] | None = None, **values: Any) -> Sample:
        return await self.client.send(Request(path, json.dumps(values).encode(), headers or {}, True))

    async def chat(self, text: str, headers: dict[str, str] | None = None, **values: Any) -> Sample:
        return await self.send(CHAT, headers, messages=[{"role": "user", "content": text}], **values)

    async def get(self, path: str) -> Sample:
        return await self.client.send(Request(path, keep_body=True))

    @asynccontextmanager
    async def held(self, count: int) -> AsyncIterator[list[asyncio.Task[Sample]]]:
        """So many requests that are never answered; they leave at the end."""
        before = self.engine.stats()
        taken = before.running + before.waiting + count
        tasks = [asyncio.create_task(self.chat("hold", HOLD)) for _ in range(count)]
        await self.until(lambda stats: stats.running + stats.waiting == taken)
        yield tasks
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def until(self, check: Any) -> Stats:
        async with asyncio.timeout(LIMIT_S):
            await self.engine.until(check)
        return self.engine.stats()


@asynccontextmanager
async def running(settings: SimSettings = FAST, faults: Faults = NO_FAULTS) -> AsyncIterator[Sim]:
    engine = SimEngine(settings, faults)
    url = await engine.start()
    try:
        async with Client(url, LIMIT_S) as client:
            yield Sim(engine, url, client)
    finally:
        await engine.stop()


@pytest.fixture
async def sim() -> AsyncIterator[Sim]:
    async with running() as started:
        yield started


def events(sample: Sample) -> list[dict[str, Any]]:
    """The decoded events of a stream, ``[DONE]`` left out."""
    assert sample.body is not None
    return [json.loads(data) for data in sse.iter_data(sample.body) if data != sse.DONE]


def decoded(sample: Sample) -> Any:
    assert sample.body is not None
    return json.loads(sample.body)


@dataclass(frozen=True)
class Streamed:
    """What a stream with token ids says."""

    ids: list[int]
    text: str
    finish_reason: str


def streamed(sample: Sample) -> Streamed:
    choices = [choice for chunk in events(sample) for choice in chunk["choices"]]
    ids = [token for choice in choices for token in choice.get("token_ids") or []]
    texts = [choice["text"] if "text" in choice else choice["delta"]["content"] for choice in choices]
    return Streamed(ids, "".join(texts), choices[-1]["finish_reason"])


# ---- text


@pytest.mark.parametrize("said", [0, 1, 7, 11])
@pytest.mark.parametrize("stop_share", [0.0, 0.05])
@pytest.mark.parametrize("max_tokens", [10, None])
async def test_a_continuation_is_the_rest_of_the_undisturbed_answer(
    said: int, stop_share: float, max_tokens: int | None
) -> None:
    async with running(replace(FAST, stop_share=stop_share)) as sim:
        asked = {"stream": True, "return_token_ids": True}
        sample = await sim.chat("What is the sea?", max_tokens=max_tokens, **asked)
        whole, prompt_ids = streamed(sample), events(sample)[0]["prompt_token_ids"]
        said = min(said, len(whole.ids) - 1)
        left = None if max_tokens is None else max_tokens - said
        prompt = prompt_ids + whole.ids[:said]
        rest = streamed(await sim.send(TEXT, prompt=prompt, max_tokens=left, **asked))
    assert whole.ids[:said] + rest.ids == whole.ids
    assert detokenise(whole.ids[:said]) + rest.text == whole.text
    assert rest.finish_reason == whole.finish_reason


async def test_a_text_can_be_continued_as_text(sim: Sim) -> None:
    whole = decoded(await sim.send(TEXT, prompt="The sea is"))["choices"][0]["text"]
    start = whole[: whole.index(" ", 20)]
    rest = decoded(await sim.send(TEXT, prompt="The sea is" + start))["choices"][0]["text"]
    assert start + rest == whole


async def test_equal_seeds_say_the_same_and_other_seeds_do_not() -> None:
    said = []
    for seed in (1, 1, 2):
        async with running(replace(FAST, seed=seed)) as sim:
            said.append(decoded(await sim.chat("Hello"))["choices"][0]["message"]["content"])
    assert said[0] == said[1] != said[2]


async def test_an_answer_ends_by_itself_with_a_token_that_has_no_text(sim: Sim) -> None:
    answer = streamed(await sim.chat("Hello", stream=True, return_token_ids=True))
    assert (len(answer.ids), answer.ids[-1], answer.finish_reason) == (FAST.tokens + 1, EOS, "stop")
    assert len(answer.text.split()) == FAST.tokens


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_max_tokens_cuts_an_answer(sim: Sim, name: str) -> None:
    answer = decoded(await sim.chat("Hello", **{name: 5}))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5


async def test_ignore_eos_goes_on_to_max_tokens(sim: Sim) -> None:
    answer = decoded(await sim.chat("Hello", ignore_eos=True, max_tokens=20))
    assert answer["usage"]["completion_tokens"] == 20


async def test_a_streamed_answer_says_what_a_whole_one_says(sim: Sim) -> None:
    whole = decoded(await sim.chat("Hello"))["choices"][0]["message"]["content"]
    assert streamed(await sim.chat("Hello", stream=True)).text == whole


@pytest.mark.parametrize("endpoint", Endpoint)
async def test_answers_have_vllms_keys_in_vllms_order(sim: Sim, endpoint: Endpoint) -> None:
    values: dict[str, Any] = {"prompt": "Hello", "messages": [{"role": "user", "content": "Hello"}]}
    model = Answer("sim", " a b c", Usage(1, 2, 3), system_fingerprint="x")
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    live = events(await sim.send(endpoint.value, **values, **usage))
    replayed = b"".join(replay.as_stream(model, endpoint, "1", 1, with_usage=True))
    expected = [json.loads(data) for data in sse.iter_data(replayed) if data != sse.DONE]
    for position in (0, 1, -2, -1):  # role or first token, token, last token, usage
        assert shape(live[position]) == shape(expected[position]), position
    whole = decoded(await sim.send(endpoint.value, **values))
    assert shape(whole) == shape(json.loads(replay.as_json(model, endpoint, "1", 1)))


def shape(value: Any) -> Any:
    """Keys in order, with null, text and number told apart."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


async def test_usage_comes_only_when_asked_for(sim: Sim) -> None:
    assert all(chunk["choices"] for chunk in events(await sim.chat("Hello", stream=True)))


# ---- the prefix cache, slots, prefill


async def test_a_prompt_seen_before_is_cached_but_for_its_last_part(sim: Sim) -> None:
    for _ in range(2):
        await sim.chat(LONG)
    prompt = len(render_chat([{"role": "user", "content": LONG}]))
    stats = sim.engine.stats()
    assert stats.prompt_tokens == 2 * prompt
    assert stats.cached_tokens == (prompt - 1) // BLOCK * BLOCK


async def test_prompts_share_only_their_common_beginning(sim: Sim) -> None:
    await sim.chat(LONG + "One end.")
    await sim.chat("Another beginning. " + LONG)
    assert sim.engine.stats().cached_tokens == 0
    await sim.chat(LONG + "Quite another end.")
    assert 0 < sim.engine.stats().cached_tokens <= len(render_chat([{"role": "user", "content": LONG}]))


async def test_the_next_turn_finds_the_last_answer_in_the_cache(sim: Sim) -> None:
    messages = [{"role": "user", "content": LONG}]
    answer = decoded(await sim.send(CHAT, messages=messages))["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": answer})
    first_turn = len(render_chat(messages)) - 1  # without the mark that asks for the next answer
    await sim.send(CHAT, messages=[*messages, {"role": "user", "content": "And then?"}])
    assert sim.engine.stats().cached_tokens == first_turn // BLOCK * BLOCK


async def test_a_full_cache_forgets_what_was_used_least_recently() -> None:
    prompt = len(render_chat([{"role": "user", "content": "A" + LONG}]))
    async with running(replace(FAST, cache_tokens=2 * (prompt + BLOCK))) as sim:
        for text in ("A", "B", "A", "C"):
            await sim.chat(text + LONG)
        cached = [sim.engine.stats().cached_tokens]
        for text in ("A", "B"):
            await sim.chat(text + LONG)
            cached.append(sim.engine.stats().cached_tokens)
    assert cached[1] - cached[0] == (prompt - 1) // BLOCK * BLOCK
    assert cached[2] - cached[1] < BLOCK * 2  # of B, at most the beginning is left


async def test_requests_beyond_the_slots_wait_until_one_is_free() -> None:
    async with running(replace(FAST, slots=2)) as sim, sim.held(3) as held:
        stats = sim.engine.stats()
        assert (stats.running, stats.waiting) == (2, 1)
        held[0].cancel()
        stats = await sim.until(lambda stats: stats.aborted == 1 and stats.waiting == 0)
        assert stats.running == 2


async def test_a_client_that_leaves_the_queue_never_runs() -> None:
    async with running(replace(FAST, slots=1)) as sim, sim.held(2) as held:
        held[1].cancel()
        stats = await sim.until(lambda stats: stats.aborted == 1)
        assert (stats.running, stats.waiting) == (1, 0)


async def test_one_prompt_is_prefilled_at_a_time() -> None:
    async with running(replace(FAST, prefill_ms_per_1k=200)) as sim:
        first = asyncio.create_task(sim.chat(LONG, max_tokens=1))
        await sim.until(lambda stats: stats.running == 1)
        second = await sim.chat("Short", max_tokens=1)
        assert first.done()
        assert second.ok


async def test_tokens_take_longer_the_more_slots_are_in_use() -> None:
    async with running(replace(FAST, slots=4, itl_growth=2.0)) as sim, sim.held(1):
        assert sim.engine.scheduler.itl_s() == pytest.approx(0.001)
        async with sim.held(2):
            assert sim.engine.scheduler.itl_s() == pytest.approx(0.002)


async def test_a_client_that_leaves_mid_answer_frees_its_slot_at_once() -> None:
    async with running(replace(FAST, tokens=100_000, max_model_len=200_000)) as sim:
        task = asyncio.create_task(sim.chat("Hello", stream=True))
        await sim.until(lambda stats: stats.running == 1)
        task.cancel()
        stats = await sim.until(lambda stats: stats.running == 0)
        assert (stats.aborted, stats.finished) == (1, 0)


# ---- faults


@pytest.mark.parametrize(
    ("fault", "error", "tokens"),
    [
        ("die_before", "cut", 0),
        ("die_after=3", "cut", 3),
        ("error_after=3", "error event", 3),
        ("garbage=http", "no HTTP", 0),
        ("garbage=json", "no [DONE]", 0),
        ("status=500", "status 500", 0),
        ("die_after=100", None, FAST.tokens),
    ],
)
async def test_a_header_strikes_one_stream(sim: Sim, fault: str, error: str | None, tokens: int) -> None:
    struck = await sim.chat("Hello", {"x-sim-fault": fault}, stream=True)
    assert (struck.error, struck.tokens) == (error, tokens)
    assert (await sim.chat("Hello", stream=True)).ok
    assert sim.engine.stats().faulted == 1
    assert sim.engine.stats().running == 0


@pytest.mark.parametrize(
    ("fault", "error"),
    [("die_after=3", "cut"), ("error_after=3", "status 500"), ("status=503", "status 503")],
)
async def test_a_header_strikes_one_whole_answer(sim: Sim, fault: str, error: str) -> None:
    assert (await sim.chat("Hello", {"x-sim-fault": fault})).error == error
    assert sim.engine.stats().aborted == 0


async def test_garbage_is_an_answer_that_is_no_json(sim: Sim) -> None:
    sample = await sim.chat("Hello", {"x-sim-fault": "garbage=json"})
    with pytest.raises(ValueError, match="Expecting"):
        decoded(sample)


async def test_an_engine_at_its_limit_says_when_to_come_back(sim: Sim) -> None:
    sample = await sim.chat("Hello", {"x-sim-fault": "status=429"})
    assert sample.refused
    assert sample.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("fault", "tokens"), [("hang_after=3", 3), ("hang_after=0", 0), ("hang_before", None)]
)
async def test_a_hanging_stream_keeps_its_slot_until_the_client_leaves(
    sim: Sim, fault: str, tokens: int | None
) -> None:
    """``tokens``: after which it hangs; ``None`` for not even headers."""
    reader, writer = await open_stream(sim.url, fault)
    async with asyncio.timeout(LIMIT_S):
        if tokens is not None:
            await reader.readuntil(b"\r\n\r\n")
        for _ in range(1 + tokens if tokens else 0):  # the role is an event, too
            await reader.readuntil(b"\n\n")
    stats = await sim.until(lambda stats: stats.running == 1)
    assert stats.aborted == 0
    writer.close()
    await writer.wait_closed()
    stats = await sim.until(lambda stats: stats.running == 0)
    assert stats.aborted == 1


async def test_a_dying_engine_resets_the_connection(sim: Sim) -> None:
    reader, writer = await open_stream(sim.url, "die_after=2")
    await reset_of(reader, writer)


async def open_stream(url: str, fault: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "stream": True})
    head = f"POST {CHAT} HTTP/1.1\r\nhost: sim\r\nx-sim-fault: {fault}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    return reader, writer


async def reset_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait for the other side to reset the connection."""
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
        writer.close()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()


async def test_a_slow_first_byte_takes_no_slot_meanwhile(sim: Sim) -> None:
    task = asyncio.create_task(sim.chat("Hello", {"x-sim-fault": "first_byte_ms=50"}, stream=True))
    stats = await sim.until(lambda stats: stats.faulted == 1)
    assert (stats.running, stats.waiting) == (0, 0)
    sample = await task
    assert sample.ok
    assert sample.ttft_s is not None
    assert sample.ttft_s > 0.045


async def test_refusing_stops_listening_and_can_be_taken_back(sim: Sim) -> None:
    async with Client(sim.url, LIMIT_S) as control:
        on = await control.send(Request("/sim/faults", b'{"refuse":true}'))
        assert on.ok
        assert (await sim.chat("Hello")).error == "no connection"
        off = await control.send(Request("/sim/faults", b"{}"))
        assert off.ok
    assert (await sim.chat("Hello")).ok


async def test_refusing_resets_old_connections_as_well(sim: Sim) -> None:
    assert (await sim.chat("Hello")).ok
    await sim.engine.set_faults(Faults(refuse=True))
    assert (await sim.chat("Hello")).error == "cut"


async def test_an_engine_can_refuse_from_the_start() -> None:
    async with running(faults=Faults(refuse=True)) as sim:
        assert (await sim.chat("Hello")).error == "no connection"
        await sim.engine.set_faults(NO_FAULTS)
        assert (await sim.chat("Hello")).ok


async def test_a_fault_strikes_so_many_requests() -> None:
    async with running(faults=Faults(status=500, times=2)) as sim:
        assert [(await sim.chat("Hello")).status for _ in range(4)] == [500, 500, 200, 200]


async def test_a_fault_strikes_a_share_of_the_requests() -> None:
    async with running(faults=Faults(status=500, share=0.5)) as sim:
        statuses = [(await sim.chat("Hello", max_tokens=1)).status for _ in range(40)]
    assert 8 < statuses.count(500) < 32


async def test_a_fault_ends_by_itself(sim: Sim) -> None:
    await sim.engine.set_faults(Faults(refuse=True, for_s=0.02))
    assert (await sim.chat("Hello")).error == "no connection"
    async with asyncio.timeout(LIMIT_S):
        while not (await sim.chat("Hello")).ok:
            pass


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"dye":1}', "unknown fault 'dye'"),
        (b'{"die_after":"x"}', "cannot be 'x'"),
        (b'{"status":999}', "cannot be 999"),
        (b'{"garbage":"tea"}', "cannot be 'tea'"),
        (b'{"refuse":"perhaps"}', "cannot be 'perhaps'"),
    ],
)
async def test_wrong_faults_are_refused_by_name(sim: Sim, body: bytes, message: str) -> None:
    sample = await sim.client.send(Request("/sim/faults", body, keep_body=True))
    assert sample.status == 400
    assert message in decoded(sample)["error"]["message"]
    assert (await sim.chat("Hello", {"x-sim-fault": "dye=1"})).status == 400


def test_faults_are_written_as_names_and_values() -> None:
    assert parse_faults("die_after=5, share=0.5,refuse") == Faults(die_after=5, share=0.5, refuse=True)
    assert parse_faults("") == NO_FAULTS


async def test_faults_can_be_read_and_set_again(sim: Sim) -> None:
    faults = Faults(die_after=2, garbage="json", status=503, times=3, for_s=60.0)
    await sim.engine.set_faults(faults)
    sample = await sim.client.send(
        Request("/sim/faults", json.dumps(asdict(faults)).encode(), keep_body=True)
    )
    assert decoded(sample) == asdict(faults)


@pytest.mark.parametrize("how", ["kill", "request"])
async def test_a_killed_engine_drops_everything(sim: Sim, how: str) -> None:
    async with sim.held(2) as held:
        if how == "kill":
            await sim.engine.kill()
        else:
            assert (await sim.send("/sim/die")).error == "cut"
        async with asyncio.timeout(LIMIT_S):
            await sim.engine.ended.wait()
            assert [(await task).error for task in held] == ["cut", "cut"]
        assert (await sim.chat("Hello")).error == "no connection"
        stats = sim.engine.stats()
        assert (stats.running, stats.aborted, stats.connections) == (0, 0, 0)


# ---- HTTP


async def test_connections_are_kept_between_requests(sim: Sim) -> None:
    for path in (CHAT, CHAT, TEXT):
        assert (await sim.send(path, prompt="a", messages=[{"role": "user", "content": "a"}])).ok
    assert sim.engine.stats().connections == 1


async def test_the_model_and_its_context_are_listed(sim: Sim) -> None:
    (card,) = decoded(await sim.get("/v1/models"))["data"]
    assert (card["id"], card["max_model_len"]) == ("sim", FAST.max_model_len)
    assert (await sim.get("/health")).status == 200
    assert (await sim.get("/nothing")).status == 404


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"prompt": "a", "model": "other"}, 404),
        ({}, 400),
        ({"prompt": []}, 400),
        ({"prompt": [-1]}, 400),
        ({"prompt": "a", "max_tokens": "many"}, 400),
        ({"prompt": "a", "n": 2}, 400),
        ({"prompt": "a", "stop": ["b"]}, 400),
        ({"prompt": [5000] * 40_000}, 400),
    ],
)
async def test_a_request_that_cannot_be_answered_gets_an_error(
    sim: Sim, values: dict[str, Any], status: int
) -> None:
    sample = await sim.send(TEXT, **values)
    assert sample.status == decoded(sample)["error"]["code"] == status


async def test_a_key_can_be_required() -> None:
    async with running(replace(FAST, api_key="secret")) as sim:
        assert (await sim.chat("Hello")).status == 401
        assert (await sim.chat("Hello", {"authorization": "Bearer secret"})).ok
        assert (await sim.get("/sim/stats")).status == 200


async def test_the_last_requests_can_be_looked_at() -> None:
    async with running(replace(FAST, keep_bodies=1)) as sim:
        for text in ("one", "two"):
            await sim.chat(text, {"x-request-id": text})
        (seen,) = decoded(await sim.get("/sim/stats"))["seen"]
    assert (seen["path"], seen["headers"]["x-request-id"]) == (CHAT, "two")
    assert json.loads(seen["body"])["messages"][0]["content"] == "two"


# ---- a process of its own


@contextmanager
def process(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The engine as a process, and its URL."""
    ready = folder / "ready.json"
    script = Path(__file__).parents[2] / "scripts" / "sim_engine.py"
    command = [sys.executable, str(script), "--ready-file", str(ready), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            url = started.stdout.readline().decode().strip()
            assert json.loads(ready.read_text()) == {"url": url, "pid": started.pid}
            yield started, url
        finally:
            started.kill()


async def test_a_process_takes_its_settings_and_faults_as_flags(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "prompt": "a", "stream": True}).encode()
    flags = ("--itl-ms", "1", "--tokens", "3", "--model", "m", "--faults", "status=500,times=1")
    with process(tmp_path, *flags) as (started, url):
        async with Client(url, LIMIT_S) as client:
            samples = [await client.send(Request(TEXT, body)) for _ in range(2)]
        assert [(sample.status, sample.tokens) for sample in samples] == [(500, 0), (200, 3)]
        started.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(started.wait, LIMIT_S) == 0


async def test_a_process_that_is_told_to_die_resets_its_clients_and_fails(tmp_path: Path) -> None:
    with process(tmp_path) as (started, url):
        reader, writer = await open_stream(url, "hang_after=0")
        await reader.readuntil(b"\r\n\r\n")
        async with Client(url, LIMIT_S) as client:
            assert (await client.send(Request("/sim/die", b"{}"))).error == "cut"
        await reset_of(reader, writer)
        assert await asyncio.to_thread(started.wait, LIMIT_S) == 1
