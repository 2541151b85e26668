"""An engine for ``ray.serve.llm`` that computes nothing: tokens come at fixed times, so that only the layers
around the engine are measured.

``LLMServer`` takes its class from the variable ``RAYLLM_VLLM_ENGINE_CLS``. It follows the protocol
``LLMEngine`` of Ray 2.60, as ``VLLMEngine`` does: a stream is made of finished SSE events.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray.llm._internal.serve.core.engine.protocol import LLMEngine

from benchmarks.peers.ray_serve_llm import SCRIPT_KEY, Script

WORD = " token"


class ScriptedEngine(LLMEngine):
    """Streams chat answers and serves nothing else."""

    def __init__(self, llm_config: Any) -> None:
        self._model = llm_config.model_id
        self._script = Script(**llm_config.experimental_configs[SCRIPT_KEY])

    async def start(self) -> None:
        """Nothing is loaded."""

    def routing_stats(self) -> dict[str, Any]:
        return {}

    async def chat(  # type: ignore[override]  # a generator, as the protocol's text says and its type does not
        self, request: Any, raw_request_info: Any = None
    ) -> AsyncIterator[str]:
        tokens = request.max_completion_tokens or request.max_tokens
        async for event in self._answer(tokens):
            yield event

    async def build_asgi_app(self) -> FastAPI:
        """The ASGI app for direct streaming. It only reads the body: validation is the work of a real
        engine."""
        app = FastAPI()

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> StreamingResponse:
            body = await request.json()
            events = self._answer(body.get("max_completion_tokens") or body.get("max_tokens"))
            return StreamingResponse(events, media_type="text/event-stream")

        return app

    async def _answer(self, tokens: int | None) -> AsyncIterator[str]:
        """Every token takes its time, including the first one, and no burst makes up for lateness, as in
        ``benchmarks.engines.scripted_engine``."""
        answer = Answer(self._model)
        due_s = time.monotonic()
        for position in range(count := tokens or self._script.tokens):
            due_s = max(due_s + self._script.itl_ms / 1000, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())
            if position == 0:
                yield answer.role
            yield answer.last if position == count - 1 else answer.token
        yield "data: [DONE]\n\n"

    async def resolve_lora(self, lora_model: Any) -> Any:
        raise NotImplementedError

    async def completions(self, request: Any, raw_request_info: Any = None) -> Any:
        raise NotImplementedError

    async def embeddings(self, request: Any, raw_request_info: Any = None) -> Any:
        raise NotImplementedError

    async def transcriptions(self, request: Any, raw_request_info: Any = None) -> Any:
        raise NotImplementedError

    async def reset_prefix_cache(self) -> None:
        """The engine has no prefix cache."""


class Answer:
    """The events of one answer, as vLLM writes them. They are built once, because building them is the work
    of an engine."""

    def __init__(self, model: str) -> None:
        self._shared = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self.role = self._event({"role": "assistant", "content": ""}, None)
        self.token = self._event({"content": WORD}, None)
        self.last = self._event({"content": WORD}, "length")

    def _event(self, delta: dict[str, str], finish_reason: str | None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._shared, "choices": [choice]}
        return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n"
