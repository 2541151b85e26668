"""Work for a client, as long as the client stays."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


class ClientGone(Exception):
    """The client closed the connection before the response ended."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` to its end, or cancel it as soon as the client leaves. It runs in the caller's task: in a
    burst, every task more is one more round of the event loop before an engine is asked.

    Raises:
        ClientGone: the client left first.
    """
    task = asyncio.current_task()
    assert task is not None, "a request is answered in a task"
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        await work
    except asyncio.CancelledError:
        if left and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()
