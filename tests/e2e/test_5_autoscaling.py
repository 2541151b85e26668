"""Real engines start when a request comes, a second one for a queue, and both stop when it is quiet."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from benchmarks.vllm_failover import ONE_CORE_EACH
from support.graph import AS_ADMIN
from support.server import Server, ServerSlot, launched
from support.tiny_llama import TOKENIZER_FILES

from serve_app.model_store import ModelStore

pytestmark = pytest.mark.skipif(
    "PROMPTLY_TEST_LONG" not in os.environ,
    reason="takes minutes and two engines at once: set PROMPTLY_TEST_LONG=1 on an idle machine",
)

MODEL = "tiny"
TINY_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # the least that vLLM has on a CPU
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
}
"""With SmolLM2's tokenizer, and weights that vLLM makes up: starting it is all that it is for."""

RULES = {
    "min": 0,
    "max": 2,
    "ttft_objective_s": 2.0,
    "window_s": 20.0,
    "hold_s": 2.0,
    "zero_after_s": 10.0,
    "start_s": 10.0,
}
"""Traffic is forgotten after twenty seconds; what was needed is kept for as long as a start takes, which the
policy measures."""

LIMITS = {"max_queue_wait_s": 120.0}
PLAIN: dict[str, Any] = {"cache": None, "embedder": None}
PLACES = 4
"""With two, the policy keeps a second replica for the bursts that a few requests do not rule out."""

CLIENTS = 12
TOKENS = 300
START_S = 150.0
QUIET_S = 300.0
"""Replicas are kept for as long as a start takes, which on a busy machine is minutes."""


@pytest.fixture(scope="module")
def tiny(prepared_models: ModelStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    known = prepared_models.folder("HuggingFaceTB/SmolLM2-135M-Instruct")
    for name in TOKENIZER_FILES:
        shutil.copy(known / name, folder / name)
    (folder / "config.json").write_text(json.dumps(TINY_LLAMA))
    return folder


@pytest.fixture(scope="module")
def scaled(slot: ServerSlot, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    engine = {
        "accelerator": "cpu",
        "num_cpus": 0,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 1024,
        "max_num_seqs": PLACES,
        "cpu_kv_cache_gib": 1,
        "options": {"load_format": "dummy"},
        "env": dict(ONE_CORE_EACH),
    }
    model = {"id": MODEL, "source": str(tiny), "engine": engine, "replicas": RULES, "drain_timeout_s": 5}
    folder = tmp_path_factory.mktemp("scaled")
    yield slot.start(launched(folder, folder / "store", models=[model], limits=LIMITS, **PLAIN))
    slot.stop()


@pytest.fixture
async def http(scaled: Server) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(scaled.url, timeout=aiohttp.ClientTimeout(total=START_S)) as session:
        yield session


async def ask(http: aiohttp.ClientSession, **about: Any) -> tuple[int, bytes]:
    """Status and body of a stream of ``TOKENS`` tokens."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    body |= {"max_tokens": TOKENS, "ignore_eos": True}
    async with http.post("/v1/chat/completions", json=body, **about) as response:
        return response.status, await response.read()


async def serving(http: aiohttp.ClientSession) -> int:
    """How many replicas can serve."""
    async with http.get("/admin/fleet", headers=AS_ADMIN) as response:
        return sum(member["can_serve"] for member in (await response.json())[MODEL])


async def until(http: aiohttp.ClientSession, replicas: int, within_s: float) -> list[int]:
    """The numbers of replicas that were seen on the way to ``replicas``, each once in a row."""
    seen, deadline = [await serving(http)], time.monotonic() + within_s
    while seen[-1] != replicas:
        assert time.monotonic() < deadline, f"{seen} in {within_s} s, expected {replicas}"
        await asyncio.sleep(0.25)  # another process, which sends no event
        found = await serving(http)
        seen += [found] if found != seen[-1] else []
    return seen


@asynccontextmanager
async def busy(http: aiohttp.ClientSession, clients: int) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Clients that ask again and again; their answers. Each ends the one that it has begun."""
    answers: list[tuple[int, bytes]] = []
    over = asyncio.Event()

    async def client() -> None:
        while not over.is_set():
            answers.append(await ask(http))

    tasks = [asyncio.create_task(client()) for _ in range(clients)]
    try:
        yield answers
    finally:
        over.set()
        await asyncio.gather(*tasks)


def is_whole(answer: tuple[int, bytes]) -> bool:
    status, body = answer
    return status == 200 and body.endswith(b"data: [DONE]\n\n") and b'{"error"' not in body


async def test_replicas_follow_the_load_from_none_to_two_and_back(http: aiohttp.ClientSession) -> None:
    """One story, for each start takes its time: 0 -> 1 -> 2 -> 1 -> 0."""
    for step in (is_ready_without_a_replica, wakes_for_a_request, grows_for_a_line, shrinks, ends):
        await step(http)


async def is_ready_without_a_replica(http: aiohttp.ClientSession) -> None:
    assert await serving(http) == 0
    for path in ("/ready", f"/v1/models/{MODEL}"):
        async with http.get(path) as response:
            assert response.status == 200, path


async def wakes_for_a_request(http: aiohttp.ClientSession) -> None:
    status, body = await ask(http, headers={"x-request-timeout-ms": "300"})
    assert (status, json.loads(body)["error"]["code"]) == (503, "model_starting")
    assert is_whole(await ask(http))
    assert await serving(http) == 1


async def grows_for_a_line(http: aiohttp.ClientSession) -> None:
    async with busy(http, CLIENTS) as answers:
        assert await until(http, 2, START_S) == [1, 2]
    assert len(answers) >= CLIENTS
    assert all(map(is_whole, answers))


async def shrinks(http: aiohttp.ClientSession) -> None:
    async with busy(http, 1) as answers:  # one at a time needs no second replica, and keeps the last one
        assert await until(http, 1, QUIET_S) == [2, 1]
    assert all(map(is_whole, answers))


async def ends(http: aiohttp.ClientSession) -> None:
    assert await until(http, 0, QUIET_S) == [1, 0]
    async with http.get("/ready") as response:
        assert response.status == 200
