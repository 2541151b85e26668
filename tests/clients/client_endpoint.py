"""The endpoint that the clients talk to: two scripted engines that play a model that uses tools."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from support.client_tools import PATH
from support.gateway import FAST, Running, gateway
from support.handles import LocalHandle
from support.responses import responses_handle

from serve_app.embedding import EmbedderInfo, Embedding

TENANT = "clients"
CLIENT_LIMIT_S = 240.0
PLAYS_TOOLS = replace(FAST, max_model_len=100_000, prompt_tokens_details=True, keep_bodies=4)


class OneVector:
    """An embedder whose texts all have the same vector."""

    async def embed(self, texts: list[str], tag: str = "") -> list[Embedding]:
        vector = np.full(32, 32**-0.5, dtype=np.float32).tobytes()
        return [Embedding(vector, len(text.split()), False) for text in texts]

    async def describe(self) -> EmbedderInfo:
        return EmbedderInfo("words", 32, 64)


@asynccontextmanager
async def endpoint(plan: Sequence[Mapping[str, Any]], folder: Path) -> AsyncIterator[Running]:
    """A gateway with keys, an embedder, a store in ``folder``, and two engines that play ``plan``."""
    engine = replace(PLAYS_TOOLS, plan=json.dumps(plan))
    async with (
        responses_handle(folder) as responses,
        gateway(
            engine,
            engine,
            tenants=[TENANT],
            handles={"embedder": LocalHandle(OneVector()), "responses": responses},
            embedder={"id": "words", "source": "words"},
            responses={},
            cache=None,
        ) as running,
    ):
        yield running


async def run_client(
    command: Sequence[str], home: Path, environment: Mapping[str, str], cwd: Path | None = None
) -> tuple[int, str, str]:
    """Exit status, output and errors of a client that knows nothing of this process's environment."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd or home,
        env={"PATH": PATH, "HOME": str(home), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(CLIENT_LIMIT_S):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()
