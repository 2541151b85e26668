"""A member whose answers are known, behind a gateway with guardrails; and functions that are guards."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from scripted_member import Member, begin, listening
from support.gateway import MODEL, Running, gateway

from serve_app.guardrails import Check, Refuse, Replace

SECRETS = "Write to joe.bloggs@example.com or +44 20 7946 0958, card 4111 1111 1111 1111, soon."
MASKED = "Write to [email] or [phone], card [card], soon."
MASK: dict[str, Any] = {"name": "mask", "mask": {}}

USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
HEAD = {"id": "chatcmpl-1", "created": 1, "model": MODEL}


def cut_into(text: str, size: int) -> list[str]:
    return [text[place : place + size] for place in range(0, len(text), size)]


@dataclass
class Said:
    """What the member answers, in parts of ``size`` characters."""

    text: str = SECRETS
    reasoning: str = ""
    arguments: str = ""
    size: int = 3

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        fields = await request.json()
        if request.path.endswith("/embeddings"):
            data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
            return web.json_response({"object": "list", "data": data, "model": MODEL, "usage": USAGE})
        is_chat = request.path.endswith("/chat/completions")
        if not fields.get("stream"):
            return web.json_response(self._whole(is_chat))
        response = await begin(request)
        for event in self._events(is_chat):
            await response.write(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _whole(self, is_chat: bool) -> dict[str, Any]:
        if not is_chat:
            choice: dict[str, Any] = {"index": 0, "text": self.text, "finish_reason": "stop"}
            return {**HEAD, "object": "text_completion", "choices": [choice], "usage": USAGE}
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if self.arguments:
            function = {"name": "send", "arguments": self.arguments}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        reason = "tool_calls" if self.arguments else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}

    def _events(self, is_chat: bool) -> Iterator[dict[str, Any]]:
        def event(reason: str | None = None, **said: Any) -> dict[str, Any]:
            return {**HEAD, "choices": [{"index": 0, **said, "finish_reason": reason}]}

        if not is_chat:
            *parts, last = cut_into(self.text, self.size)
            yield from (event(text=part) for part in parts)
            yield event("stop", text=last)
        else:
            yield event(delta={"role": "assistant", "content": ""})
            for part in cut_into(self.reasoning, self.size):
                yield event(delta={"reasoning": part})
            for part in cut_into(self.text, self.size):
                yield event(delta={"content": part})
            if self.arguments:
                first = {"id": "call_1", "type": "function", "function": {"name": "send", "arguments": ""}}
                yield event(delta={"tool_calls": [{"index": 0, **first}]})
            for part in cut_into(self.arguments, self.size):
                yield event(delta={"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
            yield event("tool_calls" if self.arguments else "stop", delta={})
        yield {**HEAD, "choices": [], "usage": USAGE}


@dataclass
class Guarded:
    running: Running
    member: Member

    @property
    def seen(self) -> str:
        """The bodies that the member was sent."""
        return b"".join(each.body for each in self.member.seen).decode()


@asynccontextmanager
async def guarded(
    *guards: dict[str, Any], said: Any = None, paths: Sequence[str] = (), **args: Any
) -> AsyncIterator[Guarded]:
    member = Member(said or Said())
    async with listening(member):
        own = {"paths": list(paths)} if paths else {}
        others = [member.upstream(kind="vllm", health_period_s=60.0, **own)]
        async with gateway(others=others, guardrails=list(guards), **args) as running:
            yield Guarded(running, member)


@dataclass
class Server:
    """A guard by HTTP, which does what ``act`` says."""

    act: str = "pass"
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        texts = [each["text"] for each in self.asked[-1]["texts"]]
        if self.act == "hang":
            await asyncio.Event().wait()
        if self.act == "crash":
            assert request.transport is not None
            request.transport.abort()
        answers: dict[str, Any] = {
            "pass": {"verdict": "pass"},
            "upper": {"verdict": "replace", "texts": [text.upper() for text in texts]},
            "refuse": {"verdict": "refuse", "code": "no_secrets", "message": "ask differently"},
            "huge": {"verdict": "replace", "texts": ["x" * 5_000_000 for _ in texts]},
            "too few": {"verdict": "replace", "texts": []},
            "nonsense": {"verdict": "perhaps"},
            "bad code": {"verdict": "refuse", "code": "NO " + "".join(texts)},
        }
        status = 500 if self.act == "status" else 200
        return web.json_response(answers.get(self.act, {"error": "".join(texts)}), status=status)


@asynccontextmanager
async def guard_server(act: str = "pass") -> AsyncIterator[Server]:
    server = Server(act)
    member = Member(server)
    async with listening(member):
        server.url = f"{member.url}/check?kind=all"
        yield server


BLOCKED = threading.Event()
"""What :func:`blocks` waits for."""


def shouts(check: Check) -> Replace:
    return Replace(tuple(each.text.upper() for each in check.texts))


async def shouts_later(check: Check) -> Replace:
    await asyncio.sleep(0)
    return shouts(check)


def refuses_haste(check: Check) -> Refuse | None:
    if any("soon" in each.text.lower() for each in check.texts):
        return Refuse("no haste", code="haste")
    return None


def raises(check: Check) -> None:
    raise RuntimeError("".join(each.text for each in check.texts))


async def exits(check: Check) -> None:
    raise SystemExit("".join(each.text for each in check.texts))


def returns_nonsense(check: Check) -> Sequence[str]:
    return [each.text for each in check.texts]


def blocks(check: Check) -> None:
    BLOCKED.wait()
