"""A running application, as tests see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ray import serve

CHAT = "/v1/chat/completions"
ADMIN_TOKEN = "the-admin-token-of-the-tests-is-long"
AS_ADMIN = {"authorization": f"Bearer {ADMIN_TOKEN}"}
"""Where no keys are asked for."""


@dataclass(frozen=True)
class Graph:
    """Where it is, and the keys that open it."""

    url: str
    app: str
    keys: dict[str, str]

    def headers(self, tenant: str = "a") -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[tenant]}"} if self.keys else AS_ADMIN

    def engine(self, model: str = "scripted") -> Any:
        return serve.get_deployment_handle(f"Engine:{model}", self.app)


def chat(text: str, **fields: Any) -> dict[str, Any]:
    """A request for the scripted engine; see its module for what ``text`` may say."""
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}


async def eventually(check: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Whether ``check`` becomes true in time. For effects in another process, which send no event here."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if await check():
            return True
        await asyncio.sleep(0.02)
    return False
