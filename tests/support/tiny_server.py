"""A server with small models, and a client to it."""

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
WEIGHTS = "llama"
CLIENT_TIMEOUT_S = 120.0


@contextmanager
def tiny_server(
    slot: ServerSlot, prepared_models: ModelStore, folder: Path, *models: dict[str, Any]
) -> Iterator[tuple[Server, openai.OpenAI]]:
    """``models``: their settings without a source, which is the folder ``llama`` for all of them; there is
    neither cache nor embedder beside them."""
    source = str(write_tiny_llama(folder / WEIGHTS, prepared_models.folder(TOKENIZER)))
    whole = [{"source": source, "drain_timeout_s": 1} | model for model in models]
    server = slot.start(launched(folder, folder / "store", models=whole, cache=None, embedder=None))
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=CLIENT_TIMEOUT_S
    ) as client:
        yield server, client
    slot.stop()
