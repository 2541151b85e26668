"""A replica that nobody needs is put to sleep, and wakes for the next request; on a real engine.

On a CPU vLLM stops its scheduler and keeps the memory: all but the giving back of a GPU's memory is real.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from support.server import Server, ServerSlot, get_json
from support.tiny_llama import CPU_ENGINE, ONE_CORE
from support.tiny_server import tiny_server

from serve_app.model_store import ModelStore

MODEL = "sleepy"
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
    """The server and its client."""

    server: Server
    client: openai.OpenAI

    def answer(self) -> tuple[str, float]:
        """Greedy text, and how many seconds it took."""
        began = time.monotonic()
        made = self.client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "a lamp in the harbour"}],
            temperature=0,
            max_tokens=16,
        )
        return made.choices[0].message.content or "", time.monotonic() - began

    def member(self) -> dict[str, Any]:
        (member,) = get_json(f"{self.server.url}/admin/fleet")[MODEL]
        return member

    def until(self, state: str) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while (member := self.member())["state"] != state:
            assert time.monotonic() < deadline, member
            time.sleep(0.1)  # another process, which sends no event
        return member


@pytest.fixture(scope="module")
def served(
    slot: ServerSlot, prepared_models: ModelStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    model = {"id": MODEL, "engine": CPU_ENGINE | {"env": ONE_CORE}, "replicas": RULES}
    folder = tmp_path_factory.mktemp("sleepy")
    with tiny_server(slot, prepared_models, folder, model) as (server, client):
        yield Served(server, client)


def test_an_idle_replica_sleeps_and_the_next_request_wakes_it(served: Served) -> None:
    text, start_s = served.answer()
    before = served.until("asleep")
    assert not before["can_serve"]
    for _ in range(2):
        again, wake_s = served.answer()
        assert again == text
        assert served.member()["replica"] == before["replica"]  # nothing was started
        assert wake_s < start_s
        served.until("asleep")
