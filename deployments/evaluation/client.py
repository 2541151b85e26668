"""Asks one target over HTTP, and measures."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.stream import AnswerStream, said, whole_answer
from serve_app.evaluation.target import Target, TargetError

MOST_BYTES = 16 << 20
"""Largest answer that is read."""

FRESH = {"cache-control": "no-cache, no-store"}
"""The answer is neither looked up nor stored, nor shared with an identical request in flight."""

HITS = frozenset({"exact", "semantic"})
STREAM = "text/event-stream"


def headers_of(option: str, key_variable: str | None) -> dict[str, str]:
    """Raises: TargetError: the variable is not set."""
    if key_variable is None:
        return dict(FRESH)
    key = os.environ.get(key_variable, "").strip()
    if not key:
        raise TargetError(f"{option} {key_variable}: this environment variable is not set")
    return {**FRESH, "authorization": f"Bearer {key}"}


class TargetClient:
    """``limit_s``: of one answer."""

    def __init__(self, target: Target, http: aiohttp.ClientSession, limit_s: float) -> None:
        """Raises: TargetError: the variable with its key is not set."""
        self.target = target
        self._http = http
        self._limit_s = limit_s
        self._headers = headers_of(f"--{target.role}-key-env", target.key_variable)

    async def ask(self, case: Case) -> Answer:
        """Whatever goes wrong is the answer's ``error``."""
        body = self.target.body(case)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._asked(body, began)
        except TimeoutError:
            error = f"no answer within {self._limit_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as raised:
            error = _words(raised)
        return Answer(error=error, e2e_s=time.perf_counter() - began)

    async def _asked(self, body: Mapping[str, Any], began: float) -> Answer:
        async with self._http.post(self.target.endpoint, json=body, headers=self._headers) as response:
            if response.status != 200:
                message = await _message(response)
                return Answer(error=f"status {response.status}: {message}", e2e_s=time.perf_counter() - began)
            if response.headers.get("x-cache") in HITS:
                return Answer(error="the cache answered, although the request asked for a fresh answer")
            if not response.content_type.startswith(STREAM):
                return whole_answer(await _bounded(response), time.perf_counter() - began)
            stream, size, now = AnswerStream(), 0, 0.0
            async for piece in response.content.iter_any():
                now = time.perf_counter() - began
                size += len(piece)
                if size > MOST_BYTES:
                    return Answer(error=f"the answer is longer than {MOST_BYTES >> 20} MiB", e2e_s=now)
                stream.feed(piece, now)
            return stream.answer(now)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """Raises: ValueError: it is too long."""
    body = b""
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise ValueError(f"the answer is longer than {MOST_BYTES >> 20} MiB")
    return body


async def _message(response: aiohttp.ClientResponse) -> str:
    body = await _bounded(response)
    try:
        return said(json.loads(body))
    except ValueError:
        return said(body.decode(errors="replace"))


def _words(error: Exception) -> str:
    return f"no answer: {error or type(error).__name__}"
