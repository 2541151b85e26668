"""An engine dies while it answers: the client sees one undisturbed stream, and Serve replaces the engine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import psutil
import pytest
import yaml
from benchmarks.peers.endpoint import PeerError
from benchmarks.vllm_failover import ONE_CORE_EACH, EngineProcesses, engine_processes
from support.server import MODEL, ROOT, Server, ServerSlot, get_json, launched

from deployments.launcher.processes import descendants, process_table

QUESTION: list[Any] = [{"role": "user", "content": "Tell me a long story about a lighthouse keeper."}]
TOKENS = 150
PLAIN: dict[str, Any] = {}
TOOL = {"type": "object", "properties": {"name": {"type": "string"}}}
WITH_TOOLS: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "remember", "parameters": TOOL}}],
    "stop": ["a text that never comes"],
}
"""The other engine is told the tokens so far: a text completion could neither call nor hold text back."""

CHUNKS_BEFORE_THE_DEATH = 10
RECOVERY_S = 240.0
"""Of one replica. It takes a minute where nothing else runs."""


@dataclass(frozen=True)
class Answer:
    text: str
    calls: str
    finish_reason: str | None
    usage: Any


def two_replicas() -> list[dict[str, Any]]:
    """The model of config/local.yaml, twice, in float32. The engine that continues reads the tokens sent so
    far as one prompt, which rounds otherwise than token by token. In bfloat16 that can decide between two
    words."""
    document = yaml.safe_load((ROOT / "config" / "local.yaml").read_text())
    (model,) = document["applications"][0]["args"]["models"]
    model["engine"] |= {"env": dict(ONE_CORE_EACH), "dtype": "float32", "warm_up": False}
    return [model | {"replicas": 2, "drain_timeout_s": 1}]


@pytest.fixture(scope="module")
def pair(slot: ServerSlot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pair")
    plain = {"models": two_replicas(), "cache": None, "embedder": None}
    yield slot.start(launched(folder, folder / "store", **plain))
    slot.stop()


def stream_answer(
    server: Server, fields: dict[str, Any], disturb: Callable[[str], None] | None = None
) -> Answer:
    """What the official client saw, which raises an error event. After a few chunks ``disturb`` is told the
    replica that sent them."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        temperature=0,
        max_tokens=TOKENS,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"cache-control": "no-store"},
        **fields,
    )
    served_by = stream.response.headers["x-served-by"]
    text, calls, finish_reason, usage = "", "", None, None
    for count, chunk in enumerate(stream):
        if count == CHUNKS_BEFORE_THE_DEATH and disturb is not None:
            disturb(served_by)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += "".join(call.function.arguments or "" for call in choice.delta.tool_calls or [])
            finish_reason = choice.finish_reason or finish_reason
        usage = chunk.usage or usage
    if usage is not None:  # a continued stream does not know what the engine that died had cached
        usage = usage.model_copy(update={"prompt_tokens_details": None})
    return Answer(text, calls, finish_reason, usage)


def members(server: Server) -> dict[str, dict[str, Any]]:
    """By replica, those that serve."""
    fleet = get_json(f"{server.url}/admin/fleet")[MODEL]
    return {member["replica"]: member for member in fleet if member["can_serve"]}


def both_engines(server: Server) -> dict[str, EngineProcesses]:
    """The processes of each replica, once two serve. A replica that has just been killed may be in the fleet
    until its next health check, without processes."""
    deadline = time.monotonic() + RECOVERY_S
    while True:
        with contextlib.suppress(PeerError):
            serving = members(server).items()
            engines = {
                replica: engine_processes(server.process.pid, each["url"]) for replica, each in serving
            }
            if len(engines) == 2:
                return engines
        assert time.monotonic() < deadline, "the other replica does not serve"
        time.sleep(0.25)


def test_an_engine_of_one_rank_is_one_process(pair: Server) -> None:
    cores = [engine.engine_core for engine in both_engines(pair).values()]
    below = [child.name() for core in cores for child in psutil.Process(core).children(recursive=True)]
    assert [name for name in below if name.startswith("VLLM")] == []


@pytest.mark.parametrize(
    ("part", "fields"), [("replica", PLAIN), ("engine_core", WITH_TOOLS)], ids=["plain", "tools"]
)
def test_a_stream_survives_the_death_of_its_engine(pair: Server, part: str, fields: dict[str, Any]) -> None:
    undisturbed = stream_answer(pair, fields)
    engines = both_engines(pair)

    def kill(replica: str) -> None:
        os.kill(getattr(engines[replica], part), signal.SIGKILL)

    before = get_json(f"{pair.url}/admin/traffic")
    answer = stream_answer(pair, fields, kill)
    after = get_json(f"{pair.url}/admin/traffic")
    assert answer == undisturbed
    assert answer.usage.completion_tokens == TOKENS
    assert (after["continued"] - before["continued"], after["cut"] - before["cut"]) == (1, 0)


def test_a_stop_during_the_recovery_leaves_no_process(pair: Server, slot: ServerSlot) -> None:
    below = descendants(pair.process.pid)
    assert slot.stop() == 0
    table = process_table()
    assert [pid for pid in below if pid in table and not table[pid].is_zombie] == []
