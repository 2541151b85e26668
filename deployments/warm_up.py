"""Requests that an engine answers before it counts as ready.

They cover what a first user would otherwise wait for: tokenizer, chat template, sampling with and
without a temperature, a short and a longer prompt, a batch, speculation (repeated text), and the HTTP
path itself.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp

from deployments.listener import SECRET_HEADER

TIMEOUT_S = 300.0
REPEATED = "The quick brown fox jumps over the lazy dog. "
LONG_PROMPT_REPEATS = 20  # about 200 tokens
BATCH = 4


class WarmUpError(RuntimeError):
    """The engine did not answer a warm-up request; the message holds its status and error."""


async def warm_up(url: str, secret: str, model: str) -> dict[str, float]:
    """Send the warm-up requests to a listener; returns how many seconds each kind took.

    Raises:
        WarmUpError: an answer was no 200.
    """
    took: dict[str, float] = {}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(url, headers={SECRET_HEADER: secret}, timeout=timeout) as session:
        for kind, bodies in _requests(model).items():
            started = time.monotonic()
            await asyncio.gather(*(_post(session, body) for body in bodies))
            took[kind] = time.monotonic() - started
    return took


def _requests(model: str) -> dict[str, list[dict[str, Any]]]:
    """By kind; the requests of one kind are sent together."""
    long_text = REPEATED * LONG_PROMPT_REPEATS
    return {
        "first request": [_chat(model, "Hello")],
        "long prompt": [_chat(model, f"Repeat: {long_text}", max_tokens=16)],
        "sampling": [_chat(model, "Hello again", temperature=0.7)],
        "whole answer": [_chat(model, "Say yes.", stream=False)],
        "batch": [_chat(model, f"Count to {number}.") for number in range(2, 2 + BATCH)],
    }


def _chat(model: str, text: str, **fields: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return body | {"max_tokens": 4, "temperature": 0, "stream": True} | fields


async def _post(session: aiohttp.ClientSession, body: dict[str, Any]) -> None:
    async with session.post("/v1/chat/completions", json=body) as response:
        text = await response.text()
        if response.status != 200:
            raise WarmUpError(f"warm-up request answered {response.status}: {text[:500]}")
