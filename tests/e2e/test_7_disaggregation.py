"""A small model whose prompts one engine prefills and another one decodes, on real parts."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import psutil
import pytest
from support.server import Server, ServerSlot, get_json
from support.tiny_llama import CPU_ENGINE, ONE_CORE
from support.tiny_server import tiny_server

from serve_app.model_store import ModelStore

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nixl") is None, reason="nixl is not installed: `pip install nixl`"
)

WORDS = "keeper lighthouse ship flag course cargo storm harbour lamp tide anchor gull rope salt".split()  # noqa: SIM905
PROMPT_WORDS = 400  # several blocks of the KV cache
ENGINE: dict[str, Any] = CPU_ENGINE | {
    "max_num_batched_tokens": 1024,
    "enable_prefix_caching": False,
    "env": ONE_CORE,
}
APART = {"disaggregation": {"prefill_replicas": 1, "prefill_timeout_s": 20.0}}


MODEL = "apart"


def long_prompt(seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=PROMPT_WORDS))


@dataclass(frozen=True)
class Served:
    """The server and its client."""

    server: Server
    client: openai.OpenAI

    def answer(self, prompt: str, **fields: Any) -> str:
        made = self.client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": prompt}],
            temperature=0,
            max_tokens=24,
            extra_body=fields,
            extra_headers={"cache-control": "no-store"},
        )
        return made.choices[0].message.content or ""

    def undivided(self, prompt: str) -> str:
        """Who asks about the prompt itself is answered by one engine alone."""
        return self.answer(prompt, prompt_logprobs=1)

    def prefills(self) -> Any:
        (member,) = get_json(f"{self.server.url}/admin/fleet")[MODEL]
        return member["prefills"]

    def prefills_after(self, answered: int) -> Any:
        """Gateways hear of it with the next report."""
        deadline = time.monotonic() + 10
        while sum((found := self.prefills()).values()) < answered:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found


@pytest.fixture(scope="module")
def served(
    slot: ServerSlot, prepared_models: ModelStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    model = {"id": MODEL, "engine": ENGINE | APART}
    folder = tmp_path_factory.mktemp("apart")
    with tiny_server(slot, prepared_models, folder, model) as (server, client):
        yield Served(server, client)


def test_what_is_prefilled_elsewhere_gives_the_same_text(served: Served) -> None:
    before = served.prefills()
    prompts = [long_prompt(seed) for seed in range(3)]
    texts = [served.undivided(prompt) for prompt in prompts]
    assert len(set(texts)) == 3  # the prompt matters
    assert [served.answer(prompt) for prompt in prompts] == texts
    after = served.prefills_after(sum(before.values()) + 3)
    assert after["elsewhere"] - before["elsewhere"] == 3
    assert after["here"] == before["here"]


def test_a_stream_of_a_prompt_prefilled_elsewhere_comes_token_by_token(served: Served) -> None:
    prompt = long_prompt(3)
    stream = served.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        temperature=0,
        max_tokens=24,
        stream=True,
        extra_headers={"cache-control": "no-store"},
    )
    pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 12
    assert "".join(piece or "" for piece in pieces) == served.undivided(prompt)


def test_without_replicas_that_prefill_prompts_are_prefilled_where_they_are_decoded(served: Served) -> None:
    prompt = long_prompt(4)
    text = served.undivided(prompt)
    before = served.prefills()
    for process in psutil.Process(served.server.process.pid).children(recursive=True):
        if process.name().startswith("ray::ServeRepli") and ":Prefill:" in " ".join(process.cmdline()):
            os.kill(process.pid, signal.SIGKILL)
    assert served.answer(prompt) == text
    after = served.prefills_after(sum(before.values()) + 1)
    assert after["here"] - before["here"] == 1
