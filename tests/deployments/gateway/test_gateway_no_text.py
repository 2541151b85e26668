"""No prompt, no answer and no key is in usage, audit, logs, metrics or errors, whatever happens."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route as Path_
from support.accounts import accounts_handle, bearer, managed
from support.gateway import Running, gateway, serving
from support.graph import eventually
from support.meter import Meter
from support.recordings import recording
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from serve_app.api.routes import FORM, ROUTES, Access
from serve_app.request.record import RequestRecord
from serve_app.settings.paths import ENGINE_PATHS, REALTIME

PROMPT = "marked-prompt-7f3a"
ANSWER = "marked-answer-9c1b"
MODEL = "sim"
POSTS = [route for route in ROUTES if route.access is Access.KEY and route.media_types("POST")]
FAILURES = ("none", "status-500", "status-400", "cut", "nonsense")
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


class Member:
    """Answers every path with the marked text, and fails as it is told, with the prompt in its errors."""

    def __init__(self) -> None:
        self.failure = "none"

    async def answer(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse({"object": "list", "data": [{"id": MODEL}]})
        body = await request.body()
        if self.failure.startswith("status"):
            told = {"error": {"message": f"{PROMPT} {ANSWER}", "type": "odd", "code": f"{PROMPT} {ANSWER}"}}
            return JSONResponse(told, int(self.failure.partition("-")[2]))
        if self.failure == "nonsense":
            return Response(f"{PROMPT}{ANSWER}".encode(), media_type="application/json")
        message = {"role": "assistant", "content": ANSWER}
        choice = {"index": 0, "message": message, "text": ANSWER, "finish_reason": "stop"}
        whole = {"id": "x", "object": "o", "created": 1, "model": MODEL, "choices": [choice], "usage": USAGE}
        if b'"stream":true' in body or b'"stream": true' in body:
            return StreamingResponse(self._events(choice), media_type="text/event-stream")
        return JSONResponse(whole | {"text": ANSWER, "data": [{"index": 0, "embedding": [0.5]}]})

    async def _events(self, choice: dict[str, Any]) -> AsyncIterator[bytes]:
        delta = {"index": 0, "delta": {"role": "assistant", "content": ANSWER}, "text": ANSWER}
        head = {"id": "x", "object": "o", "created": 1, "model": MODEL}
        yield b"data: " + json.dumps(head | {"choices": [delta | {"finish_reason": None}]}).encode() + b"\n\n"
        if self.failure == "cut":
            return
        end = {"index": 0, "delta": {}, "text": "", "finish_reason": choice["finish_reason"]}
        yield b"data: " + json.dumps(head | {"choices": [end]}).encode() + b"\n\n"
        yield b"data: " + json.dumps(head | {"choices": [], "usage": USAGE}).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"


class Kept:
    """All that the gateway says of requests to anybody but their clients."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.records: list[bytes] = []

    def take(self, record: RequestRecord) -> None:
        self.records.append(msgspec.json.encode(record))


@asynccontextmanager
async def marked(tmp_path: Path) -> AsyncIterator[tuple[Running, Member, Kept, str]]:
    member, kept = Member(), Kept()
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    app = Starlette(routes=[Path_("/{rest:path}", member.answer, methods=methods)])
    async with serving(app) as url, accounts_handle(tmp_path) as handle:
        other = {"name": "m", "url": f"{url}/v1", "kind": "openai", "paths": list(ENGINE_PATHS)}
        args: dict[str, Any] = {
            "others": [other],
            "sinks": [kept.take],
            "meter": kept.meter,
            "logs": {"requests": "json", "refused_per_s": 10_000.0},
            "limits": {"request_timeout_s": 10.0},
            "auth": {"accounts": True},
        }
        async with gateway(handles={"accounts": handle}, **args) as running:
            key, record = managed("team", user="someone")
            await handle.target.make_key(record)

            async def known() -> bool:
                async with running.http.get("/v1/models", headers=bearer(key)) as response:
                    return response.status == 200

            assert await eventually(known, within_s=20)
            yield running, member, kept, key


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each path with the marked text wherever one may stand, streamed and not."""
    items = {"input": PROMPT, "text_1": PROMPT, "text_2": [PROMPT], "query": PROMPT, "documents": [PROMPT]}
    messages = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 9}
    for route in POSTS:
        if FORM in route.media_types("POST"):
            continue
        path = route.path.replace("{id}", "x").replace("{item}", "y").replace("{rest:path}", "odd")
        if path.endswith("/responses"):
            fields: dict[str, Any] = {"input": PROMPT, "instructions": PROMPT, "metadata": {"note": PROMPT}}
        elif path.endswith(("/messages", "chat/completions", "count_tokens")):
            fields = messages
        elif path.endswith("completions"):
            fields = {"prompt": PROMPT}
        else:
            fields = {**items, "texts": [PROMPT], "prompt": PROMPT}
        yield path, {"model": MODEL, **fields}
        if path.endswith(("completions", "/messages", "/responses")):
            yield path, {"model": MODEL, **fields, "stream": True}


async def drive(running: Running, key: str) -> list[tuple[str, int, str]]:
    """Every endpoint once: paths, statuses and bodies."""
    found = []
    for path, body in bodies():
        async with running.http.post(path, json=body, headers=bearer(key)) as response:
            found.append((path, response.status, await response.text()))
    for route in POSTS:
        if FORM in route.media_types("POST"):
            async with running.http.post(
                route.path,
                data=recording(MODEL, prompt=PROMPT, filename=f"{PROMPT}.wav"),
                headers=bearer(key),
            ) as response:
                found.append((route.path, response.status, await response.text()))
    url = f"{running.url.replace('http', 'ws')}{REALTIME}?model={MODEL}&prompt={PROMPT}"
    try:
        async with asyncio.timeout(10), connect(url, additional_headers=bearer(key)) as socket:
            await socket.send(json.dumps({"type": "session.update", "instructions": PROMPT}))
            await socket.recv()
    except (WebSocketException, OSError):
        pass  # the member speaks no WebSocket
    return found


async def refused(running: Running, key: str) -> list[tuple[str, int, str]]:
    """Requests that are refused for their own sake."""
    found = []
    wrong = key[:-4] + "AAAA"
    chat = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}]}
    for path, options in (
        ("/v1/chat/completions", {"json": chat, "headers": bearer(wrong)}),
        ("/v1/chat/completions", {"data": b'{"messages": "' + PROMPT.encode(), "headers": bearer(key)}),
        ("/v1/chat/completions", {"json": chat | {"temperature": PROMPT}, "headers": bearer(key)}),
        ("/v1/chat/completions", {"json": chat | {"n": 10_000}, "headers": bearer(key)}),
        ("/admin/usage", {"json": chat, "headers": bearer(key)}),
        ("/admin/cache/feedback", {"json": chat, "headers": bearer(key)}),
    ):
        if "data" in options:
            options["headers"] |= {"content-type": "application/json"}
        async with running.http.post(path, **options) as response:
            found.append((path, response.status, await response.text()))
    return found


def files_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()}


def our_logs(caplog: pytest.LogCaptureFixture) -> str:
    """Without the lines of the server that the test itself runs: another test may have turned them on. Under
    Serve they are off."""
    records = [each for each in caplog.records if not each.name.startswith("uvicorn")]
    return "\n".join(logging.Formatter().format(each) for each in records)


async def test_no_text_and_no_key_is_kept_or_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="ray.serve")
    async with marked(tmp_path) as (running, member, kept, key):
        answers: list[tuple[str, int, str]] = []
        asked = 0
        for failure in FAILURES:
            member.failure = failure
            answers = await drive(running, key)
            asked += sum(status == 200 for _, status, _ in answers)
            if failure == "none":  # so the marks are what the test takes them for
                assert sum(ANSWER in body for _, _, body in answers) >= 5, answers
        member.failure = "none"
        told = await refused(running, key)
        async with running.http.delete(f"/admin/cache?tag=x&text={PROMPT}") as response:
            told.append(("purge", response.status, await response.text()))

        async def counted() -> bool:
            async with running.http.get("/admin/usage?by=") as response:
                return bool((await response.json())["total"]["requests"] >= asked)

        assert await eventually(counted, within_s=30)
        places: dict[str, str] = {"records": b"".join(kept.records).decode(), "logs": our_logs(caplog)}
        for form in ("json", "csv"):
            path = f"/admin/usage?format={form}&by=day,tenant,key,user,model"
            async with running.http.get(path) as response:
                places[f"usage {form}"] = await response.text()
        for path in ("/admin/audit", "/admin/requests", "/admin/latency", "/admin/traffic", "/admin/alerts"):
            async with running.http.get(path) as response:
                places[path] = await response.text()
        places["metrics"] = repr((kept.meter.values, kept.meter.labels))
        places["errors"] = repr([each for each in told if each[1] >= 400])
        places |= files_in(tmp_path)
        secret = key.split("-", 2)[2]
        for place, text in places.items():
            for mark in (PROMPT, ANSWER, secret):
                assert mark not in text, (place, mark, text[max(0, text.find(mark) - 200) :][:400])
        assert "audit.jsonl" in places
        assert "someone" in places["usage csv"]
        assert asked > 10
