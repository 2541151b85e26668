"""Two small engines on real parts, one of them over two tensor-parallel ranks; one is killed, others do not
start: what else runs goes on, and one line says why."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from benchmarks.vllm_failover import engine_processes
from support.server import Server, ServerSlot, get_json, launched
from support.tiny_llama import CONFIG, CPU_ENGINE, ONE_CORE, write_tiny_llama

from deployments.platform.machine import this_machine
from serve_app.model_store import ModelStore

pytestmark = pytest.mark.skipif(
    "PROMPTLY_TEST_LONG" not in os.environ,
    reason="takes four minutes, for engines that start and fail: set PROMPTLY_TEST_LONG=1",
)

TIMEOUT_S = 180.0
QUESTION: list[Any] = [{"role": "user", "content": "Tell me a long story about a lighthouse keeper."}]
ENGINE: dict[str, Any] = CPU_ENGINE | {"max_num_batched_tokens": 512}
A_CORE_EACH = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}


@dataclass(frozen=True)
class Pair:
    """The server and its client, the folder of its config, and the folder of the model."""

    server: Server
    client: openai.OpenAI
    folder: Path
    source: Path

    def engines(self, model: str, app: str = "") -> Any:
        return get_json(f"{self.server.url}{app}/admin/engines")[model]

    def put_application(self, name: str, models: list[dict[str, Any]]) -> None:
        """Deploy this beside the application that runs."""
        ready = json.loads((self.folder / "ready.json").read_text())
        token = (Path(ready["folder"]) / "token").read_text()
        document = yaml.safe_load((self.folder / "config.yaml").read_text())
        (running,) = document["applications"]
        other = {"name": name, "route_prefix": f"/{name}", "args": {"models": models}}
        document["applications"].append(running | other)
        request = urllib.request.Request(
            f"{ready['dashboard_url']}/api/serve/applications/",
            json.dumps(document).encode(),
            {"content-type": "application/json", "authorization": f"Bearer {token}"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=60).close()


@pytest.fixture(scope="module")
def pair(
    slot: ServerSlot, prepared_models: ModelStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("small")
    tokenizer = prepared_models.folder("HuggingFaceTB/SmolLM2-135M-Instruct")
    source = write_tiny_llama(folder / "llama", tokenizer)
    one = {"id": "one", "source": str(source), "engine": ENGINE | {"env": ONE_CORE}}
    ranks = {"tensor_parallel_size": 2, "env": A_CORE_EACH}
    two = {"id": "two", "source": str(source), "engine": ENGINE | ranks}
    models = [model | {"drain_timeout_s": 1} for model in (one, two)]
    with pytest.MonkeyPatch.context() as environment:
        # Serve tries a constructor three times; once is enough to see what it says.
        environment.setenv("RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT", "1")
        server = slot.start(launched(folder, folder / "store", models=models, cache=None, embedder=None))
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120) as client:
        yield Pair(server, client, folder, source)
    slot.stop()


def answer(pair: Pair, model: str, tokens: int = 40) -> str:
    made = pair.client.chat.completions.create(
        model=model,
        messages=QUESTION,
        temperature=0,
        max_tokens=tokens,
        extra_headers={"cache-control": "no-store"},
    )
    return made.choices[0].message.content or ""


def eventually(done: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := done()):
        assert time.monotonic() < deadline, what
        time.sleep(0.25)
    return found


def test_two_tensor_parallel_ranks_give_the_greedy_text_of_one(pair: Pair) -> None:
    text = answer(pair, "one")
    assert len(set(text.split())) > 5  # no loop of one word
    assert answer(pair, "two") == text


def test_the_phases_of_a_start_are_told(pair: Pair) -> None:
    for model in ("one", "two"):
        engines = pair.engines(model)
        assert (engines["status"], engines["message"]) == ("healthy", "")
        (replica,) = engines["replicas"]
        phases = replica["start_s"]
        own = ["install", "processes", "load", "compile", "graphs", "kv_cache", "server"]
        assert list(phases)[: len(own)] == own
        assert phases["processes"] > 1.0
        kinds = {"first request", "prompt of 640 tokens", "batch of 8"}
        assert {f"warm-up: {kind}" for kind in kinds} <= set(phases)


def test_a_killed_engine_ends_its_streams_with_an_error_and_is_replaced(pair: Pair) -> None:
    text = answer(pair, "one")
    (member,) = get_json(f"{pair.server.url}/admin/fleet")["one"]
    with pair.client.chat.completions.create(
        model="one", messages=QUESTION, temperature=0, max_tokens=900, stream=True
    ) as stream:
        next(iter(stream))
        os.kill(engine_processes(pair.server.process.pid, member["url"]).engine_core, signal.SIGKILL)
        with pytest.raises(openai.APIError) as caught:
            for _ in stream:
                pass
    assert "engine" in str(caught.value).lower()
    assert answer(pair, "two") == text  # its neighbour serves on

    def replaced() -> bool:
        fleet = get_json(f"{pair.server.url}/admin/fleet")["one"]
        return any(each["can_serve"] and each["replica"] != member["replica"] for each in fleet)

    eventually(replaced, "the replica was not replaced")
    assert answer(pair, "one") == text


def test_engines_that_cannot_start_say_why_and_serving_goes_on(pair: Pair, tmp_path: Path) -> None:
    other = tmp_path / "other-shape"
    shutil.copytree(pair.source, other)
    (other / "config.json").write_text(json.dumps(CONFIG | {"intermediate_size": 1024}))
    machine = this_machine()
    assert machine is not None
    # It would fit the machine, but the machine is not empty: two engines run there.
    memory = int(machine.memory_gib) - 2
    large = {"id": "large", "source": str(pair.source), "engine": ENGINE | {"cpu_kv_cache_gib": memory}}
    shape = {"id": "shape", "source": str(other), "engine": ENGINE}
    pair.put_application("broken", [large, shape])
    line = eventually(partial(failure, pair, "large"), "the large one did not fail")
    assert line.startswith(
        f"model 'large': engine.cpu_kv_cache_gib = {memory}: the KV cache needs {memory}.0 GiB"
    )
    assert "; use at most " in line
    line = eventually(partial(failure, pair, "shape"), "the one of another shape did not fail")
    assert line.startswith(f"model 'shape': source = '{other}': the weights do not fit its config.json")
    with pytest.raises(urllib.error.HTTPError) as caught:
        get_json(f"{pair.server.url}/broken/ready")
    with caught.value as answered:
        body = json.load(answered)
    assert (answered.code, body["status"], sorted(body["failed"])) == (503, "failed", ["large", "shape"])
    assert answer(pair, "one") != ""


def failure(pair: Pair, model: str) -> str:
    """Why its engines do not start; empty as long as they have not failed."""
    try:
        engines = pair.engines(model, "/broken")
    except (urllib.error.URLError, TimeoutError) as error:  # the application has no route or no gateway yet
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return ""
    return str(engines["message"]) if engines["status"] == "deploy_failed" else ""
