"""Tells a webhook what alerts do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from deployments.wire.http1 import BrokenConnection, NoConnection, Origin, request_bytes
from deployments.wire.pool import ConnectionPool
from serve_app.alerts import Change

MOST_WAITING = 100
"""Messages that wait for a webhook that does not answer; the oldest go first."""

READ_AHEAD = 1 << 16

logger = logging.getLogger("ray.serve")

Sleep = Callable[[float], Awaitable[None]]


class Webhook:
    """One message after the other, each with a bounded number of attempts. Redirects are not followed. A
    webhook that fails costs one line in the log until it works again, and nothing else. No message has text
    of a request."""

    def __init__(self, url: str, *, timeout_s: float, attempts: int, sleep: Sleep = asyncio.sleep) -> None:
        self._origin = Origin.of(url)
        parts = urlsplit(url)
        rest = (parts.path or "/").removeprefix(self._origin.path)
        self._target = rest + (f"?{parts.query}" if parts.query else "")
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._sleep = sleep
        self._pool = ConnectionPool(connect_timeout_s=timeout_s, idle_s=0.0, read_ahead=READ_AHEAD)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)
        self._is_failing = False
        self._task = asyncio.get_running_loop().create_task(self._send_forever())

    def __call__(self, change: Change, unix_s: float) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
        self._waiting.put_nowait(message(change, unix_s))

    async def close(self) -> None:
        """What still waits is not sent."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._pool.close()

    async def _send_forever(self) -> None:
        while True:
            body = await self._waiting.get()
            try:
                problem = await self._send(body)
            except Exception as error:  # whatever it is, the next message is tried
                problem = type(error).__name__
            if problem and not self._is_failing:
                logger.error("alerts.webhook_url: %s is not told of alerts: %s", self._origin.host, problem)
            self._is_failing = bool(problem)

    async def _send(self, body: bytes) -> str:
        """Why no attempt succeeded; empty if one did."""
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                await self._sleep(2.0 ** (attempt - 1))
            problem = await self._try(body)
            if not problem:
                break
        return problem

    async def _try(self, body: bytes) -> str:
        head = {"content-type": "application/json", "connection": "close"}
        request = request_bytes(self._origin, "POST", self._target, head, body)
        try:
            async with asyncio.timeout(self._timeout_s):
                status, _ = await self._pool.ask(self._origin, request)
        except TimeoutError:
            return f"no answer within {self._timeout_s:g} s (alerts.webhook_timeout_s)"
        except (NoConnection, BrokenConnection, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return "" if 200 <= status < 300 else f"it answered {status}"


def message(change: Change, unix_s: float) -> bytes:
    """JSON; ``text`` is what chat services show."""
    rule = change.rule
    return msgspec.json.encode(
        {
            "source": "promptly",
            "state": "firing" if change.firing else "cleared",
            "alert": rule.name,
            "model": change.model,
            "value": change.value,
            "limit": rule.said_limit,
            "unit": rule.unit,
            "summary": rule.summary,
            "at": datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds"),
            "text": str(change),
        }
    )
