"""A replica without work is put to sleep, and wakes for the next request; on real engines.

On a CPU vLLM stops its scheduler and keeps the memory: all but the giving back of a GPU's memory is real, the
reading of weights after a deep sleep too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from support.server import Server, ServerSlot, get_json
from support.tiny_llama import CPU_ENGINE, ONE_CORE, write_tiny_llama
from support.tiny_server import WEIGHTS, tiny_server

from serve_app.model_store import ModelStore

LIGHT, DEEP = "light", "deep"
"""Models that differ in how deep they sleep."""

RULES = {
    "min": 0,
    "max": 1,
    "sleeping": 1,
    "window_s": 4.0,
    "hold_s": 1.0,
    "zero_after_s": 2.0,
    "start_s": 5.0,
}
WAIT_S = 120.0


@dataclass(frozen=True)
class Served:
    """The server, its client and the folder of both models' weights."""

    server: Server
    client: openai.OpenAI
    weights: Path

    def answer(self, model: str) -> tuple[str, float]:
        """Greedy text, and how many seconds it took."""
        began = time.monotonic()
        made = self.client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "a lamp in the harbour"}],
            temperature=0,
            max_tokens=16,
        )
        return made.choices[0].message.content or "", time.monotonic() - began

    def member(self, model: str) -> dict[str, Any]:
        (member,) = get_json(f"{self.server.url}/admin/fleet")[model]
        return member

    def until_asleep(self, model: str) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while (member := self.member(model))["state"] != "asleep":
            assert time.monotonic() < deadline, member
            time.sleep(0.1)  # another process, which sends no event
        return member


@pytest.fixture(scope="module")
def served(
    slot: ServerSlot, prepared_models: ModelStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    engine = CPU_ENGINE | {"env": ONE_CORE}
    light = {"id": LIGHT, "engine": engine, "replicas": RULES}
    deep = {"id": DEEP, "engine": engine, "replicas": RULES | {"sleep_level": 2}}
    folder = tmp_path_factory.mktemp("sleepy")
    with tiny_server(slot, prepared_models, folder, light, deep) as (server, client):
        yield Served(server, client, folder / WEIGHTS)


@pytest.mark.parametrize("model", [LIGHT, DEEP])
def test_an_idle_replica_sleeps_and_the_next_request_wakes_it(served: Served, model: str) -> None:
    text, start_s = served.answer(model)
    before = served.until_asleep(model)
    assert not before["can_serve"]
    again, wake_s = served.answer(model)
    assert again == text
    assert served.member(model)["replica"] == before["replica"]  # nothing was started
    assert wake_s < start_s
    served.until_asleep(model)  # and again


def test_after_a_deep_sleep_the_weights_are_read_from_the_disk(served: Served, tmp_path: Path) -> None:
    text, _ = served.answer(DEEP)
    replica = served.until_asleep(DEEP)["replica"]
    others = write_tiny_llama(tmp_path / "others", served.weights, seed=1)
    shutil.copy2(others / "model.safetensors", served.weights / "model.safetensors")
    changed, _ = served.answer(DEEP)
    assert changed != text
    assert served.member(DEEP)["replica"] == replica
