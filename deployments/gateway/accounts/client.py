"""The gateway's side of the owner of the accounts: its calls, repeated until it answers or time is over."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from deployments.platform.serve import cause_of
from deployments.wire.direct_calls import DirectCallFailed, DirectClient
from serve_app.accounts.calls import ACCOUNTS
from serve_app.accounts.keys import AccountsError
from serve_app.errors import AccountsUnavailable

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

TRY_S = 2.5
"""One try: an owner that hangs is asked again, as its successor may answer. All calls may be repeated. It is
longer than the owner itself waits for a locked file."""

PAUSE_S = 0.05

logger = logging.getLogger("ray.serve")


class AccountsClient:
    """Made inside a running event loop; ``close`` ends it. Each method of ``ACCOUNTS`` is called by name."""

    def __init__(self, handle: DeploymentHandle[Any], patience_s: float) -> None:
        self._direct = DirectClient(handle, ACCOUNTS)
        self._patience_s = patience_s

    async def call(self, method: str, *args: Any) -> Any:
        """Raises: AccountsUnavailable: the owner failed, or did not answer in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while True:
            try:
                return await self.call_once(method, *args, timeout_s=min(TRY_S, until - loop.time()))
            except AccountsUnavailable as error:
                if error.is_final or loop.time() + PAUSE_S >= until:
                    logger.warning("the owner of the accounts: %s: %s", method, error.reason)
                    raise
                await asyncio.sleep(PAUSE_S)

    async def call_once(self, method: str, *args: Any, timeout_s: float = TRY_S) -> Any:
        """Raises: AccountsUnavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._direct.call(method, *args)
        except Exception as error:
            cause = cause_of(error)
            failed = isinstance(error, DirectCallFailed) or isinstance(cause, AccountsError)
            reason = _said(cause) if failed else "their owner is away"
            raise AccountsUnavailable(reason, is_final=failed) from error

    async def close(self) -> None:
        await self._direct.close()


def _said(cause: BaseException) -> str:
    """Without the path of the file, which clients need not know."""
    text = str(cause).lower()
    if "locked" in text or "busy" in text:
        return "the file is locked"
    if "full" in text or "disk are free" in text:
        return "the disk is full"
    return "their owner failed"
