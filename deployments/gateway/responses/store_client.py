"""The gateway's side of the store of responses: its calls, repeated until it answers or time is over."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, Any

from deployments.platform.serve import cause_of
from deployments.wire.direct_calls import DirectCallFailed, DirectClient
from serve_app.errors import NotFound, ResponsesUnavailable
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.values import Absence, ChainBounds, Record, StoreError
from serve_app.wire.calls import RESPONSES

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

TRY_S = 3.0
"""One try: a store that hangs is asked again, as its successor may answer. All calls may be repeated."""

PAUSE_S = 0.05
IMPATIENT_S = 1.0
"""How long is tried while the store was away for a whole ``responses.call_timeout_s`` the last time."""

logger = logging.getLogger("ray.serve")


class ResponseStoreClient:
    """Made inside a running event loop; ``close`` ends it. Each method of ``RESPONSES`` is called by name."""

    def __init__(self, handle: DeploymentHandle[Any], settings: ResponsesSettings) -> None:
        self._direct = DirectClient(handle, RESPONSES)
        self._patience_s = settings.call_timeout_s
        self._is_away = False
        self._asking = 0
        self._max_waiting = settings.max_waiting_calls
        self.bounds = ChainBounds(settings.max_chain, settings.max_chain_bytes, settings.max_chain_tokens)

    async def call(self, method: str, *args: Any) -> Any:
        """Raises: ResponsesUnavailable: the store failed, or did not answer in time."""
        answer, _ = await self._answered(method, args)
        return answer

    async def delete(self, method: str, *args: Any) -> Absence | None:
        """``None``: it is deleted. A repeated try finds nothing where an earlier one was carried out and its
        answer was lost.

        Raises:
            ResponsesUnavailable: as ``call``.
        """
        absence, tries = await self._answered(method, args)
        is_gone = absence in (Absence.DELETED, Absence.UNKNOWN)
        return None if tries > 1 and is_gone else absence

    async def _answered(self, method: str, args: tuple[Any, ...]) -> tuple[Any, int]:
        """The answer, and which try it answers."""
        if self._asking >= self._max_waiting:
            return await self._tried(method, args, IMPATIENT_S)
        self._asking += 1
        try:
            return await self._tried(method, args, IMPATIENT_S if self._is_away else self._patience_s)
        finally:
            self._asking -= 1

    async def _tried(self, method: str, args: tuple[Any, ...], patience_s: float) -> tuple[Any, int]:
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        for tries in count(1):
            try:
                async with asyncio.timeout(min(TRY_S, until - loop.time())):
                    answer = await self._direct.call(method, *args)
            except Exception as error:
                cause = cause_of(error)
                if isinstance(error, DirectCallFailed) or isinstance(cause, StoreError):
                    raise self._unavailable(method, cause) from error
                if loop.time() + PAUSE_S >= until:
                    self._is_away = True
                    raise self._unavailable(method, cause) from error
                logger.info("the store of responses is asked again: %s: %r", method, cause)
                await asyncio.sleep(PAUSE_S)
            else:
                self._is_away = False
                return answer, tries
        raise AssertionError("unreachable")

    async def record(self, tenant: str, response_id: str) -> Record:
        """Raises: NotFound, ResponsesUnavailable."""
        found = await self.call("get", tenant, response_id)
        if found.record is None:
            raise absent("response", response_id, found.absence)
        record: Record = found.record
        return record

    async def close(self) -> None:
        await self._direct.close()

    def _unavailable(self, method: str, cause: BaseException) -> ResponsesUnavailable:
        logger.warning("the store of responses failed: %s: %r", method, cause)
        return ResponsesUnavailable("it failed" if isinstance(cause, StoreError) else "it is away")


WHY = {
    Absence.EXPIRED: "has expired (responses.ttl_s)",
    Absence.EVICTED: "was removed to make room (responses.max_bytes, max_entries)",
    Absence.DELETED: "was deleted",
}


def absent(what: str, wanted: str, absence: Absence | None, param: str | None = None) -> NotFound:
    """Why a response, conversation or item is not there, for its own tenant; others learn nothing."""
    if absence in WHY:
        code = "expired" if absence is Absence.EXPIRED else "not_found"
        message = f"The {what} {wanted!r} {WHY[absence]}."
    else:
        code, message = "not_found", f"No {what} with id {wanted!r} found."
    code = f"previous_response_{code}" if param == "previous_response_id" else f"{what}_{code}"
    return NotFound(message, param=param, code=code)
