"""An OpenAI-compatible server that knows the right answer to every question of a stream."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from uuid import uuid4

from aiohttp import web

from cache_lab.pairs import LabelledPair
from cache_lab.stream import Meanings, answer_to
from deployments.launcher.ports import LOOPBACK, free_port

MODEL = "oracle"
WAIT_S = 60.0


class Oracle:
    """Gives every text the answer of its meaning. It runs on its own thread."""

    def __init__(self, pairs: Sequence[LabelledPair], seed: int, variation: float) -> None:
        self.url = f"http://{LOOPBACK}:{(port := free_port())}"
        self._meanings = Meanings(pairs)
        self._random = Random(seed)
        self._variation = variation
        self._port = port
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def running(self) -> Iterator[Oracle]:
        thread = threading.Thread(target=self._loop.run_forever, name="oracle", daemon=True)
        thread.start()
        runner = web.AppRunner(self._app())
        self._do(runner.setup())
        self._do(web.TCPSite(runner, LOOPBACK, self._port).start())
        try:
            yield self
        finally:
            self._do(runner.cleanup())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(WAIT_S)
            self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._answer)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        text = body["messages"][-1]["content"]
        known = text in self._meanings
        said = answer_to(self._meanings[text], self._random, self._variation) if known else "Yes."
        if body.get("stream"):
            return await self._stream(request, said)
        return web.json_response(_completion(said))

    async def _stream(self, request: web.Request, said: str) -> web.StreamResponse:
        """A streamed answer for the check that starts every endpoint; the replay does not stream."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        choice = {"index": 0, "delta": {"content": said}, "finish_reason": "stop"}
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": MODEL,
            "choices": [choice],
        }
        await response.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        return response


def _completion(said: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": uuid4().hex,
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [choice],
        "usage": usage,
    }
