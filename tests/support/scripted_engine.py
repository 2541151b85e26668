"""An engine that follows a script, for tests of everything around it.

It has the two things that the graph knows of an engine: ``describe()``, and a private listener
(the real one) that speaks vLLM's HTTP. What it does is written in the last message:

    say WORDS            answer with these words
    status N             answer with HTTP status N and a bare body
    error first          a stream whose first event is an error
    die after N          close the connection after N chunks
    hang before          never answer
    hang after N         stop sending after N chunks
    tools                answer with a tool call
    length               answer that was cut by max_tokens
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

from ray import serve

from deployments.wire.listener import PrivateListener
from serve_app.fleet import EngineReport, EngineState
from serve_app.settings import ModelSettings

FOREVER_S = 600.0
CHUNK_DELAY_S = 0.002


class Died(Exception):
    """Raised inside the ASGI app: uvicorn closes the connection without an end."""


class ScriptedEngine:
    """One replica; remembers the requests it saw and how many were aborted."""

    def __init__(self, model: ModelSettings) -> None:
        self._model = model
        self._seen: list[dict[str, Any]] = []
        self._aborted = 0
        self._running = 0
        self._listener = PrivateListener(self._app, "127.0.0.1")
        asyncio.get_running_loop().call_soon(self._listener.start)

    async def describe(self) -> EngineReport:
        return EngineReport(
            replica_id=serve.get_replica_context().replica_id.unique_id,
            model=self._model.id,
            url=self._listener.address.url,
            headers={},
            secret=self._listener.address.secret,
            socket=self._listener.address.socket,
            state=EngineState.READY,
            running=self._running,
            capacity=8,
            paths=frozenset(self._model.paths),
        )

    async def seen(self) -> list[dict[str, Any]]:
        return self._seen

    async def aborted(self) -> int:
        return self._aborted

    async def __del__(self) -> None:
        await self._listener.stop(self._model.drain_timeout_s)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await _transcribe(receive, send)
            return
        body = await _body(receive)
        if scope["path"] == "/health":
            await _respond(send, 200, b"")
            return
        request = json.loads(body)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        self._seen.append({"path": scope["path"], "body": request, "headers": headers})
        self._running += 1
        answer = asyncio.ensure_future(self._answer(scope["path"], request, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self._aborted += 1
                answer.cancel()
            else:
                await answer
        finally:
            gone.cancel()
            self._running -= 1

    async def _answer(self, path: str, request: dict[str, Any], send: Any) -> None:
        if path == "/tokenize":
            await _respond(send, 200, json.dumps({"count": len(request["prompt"].split())}).encode())
            return
        if path not in ("/v1/chat/completions", "/v1/completions"):
            await _respond(send, 404, b'{"detail":"Not Found"}')
            return
        verb, _, rest = _script(request).partition(" ")
        if verb == "status":
            await _respond(send, int(rest), b"Traceback: something internal")
        elif verb == "hang" and rest == "before":
            await asyncio.sleep(FOREVER_S)
        elif not request.get("stream"):
            await _respond(send, 200, _whole(request, verb, rest))
        else:
            await _stream(request, verb, rest, send)


def _script(request: dict[str, Any]) -> str:
    if "prompt" in request:
        return str(request["prompt"])
    return str(request["messages"][-1]["content"])


def words_of(verb: str, rest: str) -> list[str]:
    words = rest.split() if verb == "say" else ["one", "two", "three", "four", "five"]
    return [word if position == 0 else f" {word}" for position, word in enumerate(words)]


async def _stream(request: dict[str, Any], verb: str, rest: str, send: Any) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    sent = 0
    async for event in _events(request, verb, rest):
        await send({"type": "http.response.body", "body": event, "more_body": True})
        sent += 1
        if rest.startswith("after") and sent == int(rest.split()[1]):
            if verb == "die":
                raise Died
            await asyncio.sleep(FOREVER_S)
        await asyncio.sleep(CHUNK_DELAY_S)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _events(request: dict[str, Any], verb: str, rest: str) -> AsyncIterator[bytes]:
    if verb == "error":
        yield b'data: {"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}\n\n'
        return
    for event in chat_events(request["model"], verb, rest):
        yield event
    if (request.get("stream_options") or {}).get("include_usage"):
        yield _event(request["model"], [], usage=usage_of(words_of(verb, rest)))
    yield b"data: [DONE]\n\n"


def chat_events(model: str, verb: str, rest: str) -> list[bytes]:
    """Role, words and finish, as vLLM sends them."""
    first = {"role": "assistant", "content": ""}
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    events = [_event(model, [{**choice, "delta": first}])]
    events += [_event(model, [{**choice, "delta": {"content": word}}]) for word in words_of(verb, rest)]
    reason = "length" if verb == "length" else "stop"
    last = {**choice, "delta": {"content": ""}, "finish_reason": reason, "stop_reason": None}
    return [*events, _event(model, [last])]


def _event(model: str, choices: list[dict[str, Any]], **extra: Any) -> bytes:
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    return (
        b"data: " + json.dumps(chunk | {"choices": choices} | extra, separators=(",", ":")).encode() + b"\n\n"
    )


def usage_of(words: list[str]) -> dict[str, int]:
    return {"prompt_tokens": 3, "completion_tokens": len(words), "total_tokens": 3 + len(words)}


def _whole(request: dict[str, Any], verb: str, rest: str) -> bytes:
    words = words_of(verb, rest)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(words)}
    if verb == "tools":
        message |= {
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        }
    choice = {"index": 0, "logprobs": None, "finish_reason": "length" if verb == "length" else "stop"}
    choice |= {"text": "".join(words)} if "prompt" in request else {"message": message}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request["model"]}
    return json.dumps(body | {"choices": [choice], "usage": usage_of(words)}).encode()


async def _transcribe(receive: Any, send: Any) -> None:
    """vLLM's `/v1/realtime`, with the number of bytes that it heard as its text."""

    async def say(kind: str, **fields: Any) -> None:
        await send({"type": "websocket.send", "text": json.dumps({"type": kind, **fields})})

    await receive()
    await send({"type": "websocket.accept"})
    await say("session.created", id="sess-1", created=1)
    heard = 0
    while (message := await receive())["type"] == "websocket.receive":
        event = json.loads(message["text"])
        heard += len(base64.b64decode(event.get("audio", "")))
        if event.get("final"):
            await say("transcription.done", text=f"{heard} bytes", usage=None)


async def _respond(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Any) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
