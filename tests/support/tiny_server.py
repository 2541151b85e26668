"""A server with one small model, and a client to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai

from serve_app.model_store import ModelStore
from support.server import Server, ServerSlot, launched
from support.tiny_llama import write_tiny_llama

TOKENIZER = "HuggingFaceTB/SmolLM2-135M-Instruct"
CLIENT_TIMEOUT_S = 120.0


@contextmanager
def tiny_server(
    slot: ServerSlot, prepared_models: ModelStore, folder: Path, model: dict[str, Any]
) -> Iterator[tuple[Server, openai.OpenAI]]:
    """``model``: its settings without a source; it has neither cache nor embedder beside it."""
    source = str(write_tiny_llama(folder / "llama", prepared_models.folder(TOKENIZER)))
    models = [{"source": source, "drain_timeout_s": 1} | model]
    server = slot.start(launched(folder, folder / "store", models=models, cache=None, embedder=None))
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=CLIENT_TIMEOUT_S
    ) as client:
        yield server, client
    slot.stop()
