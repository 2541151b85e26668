"""A part that alone owns a store: how it opens the store, removes what is old, and is called by gateways.

There is one replica of it, because the store has one owner. It keeps nothing in memory that is not in the
store: when it is killed, Serve starts another, and gateways repeat what was not answered (``owner_client``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from deployments.platform.serve import node_address
from deployments.platform.telemetry import call_tracer
from deployments.wire.direct_calls import DirectCalls, DirectlyCalled
from serve_app.wire.calls import Interface
from serve_app.wire.private_address import PrivateAddress

REOPEN_PERIOD_S = 5.0

logger = logging.getLogger("ray.serve")


class OwnedStore(Protocol):
    async def sweep(self, now: float) -> None:
        """Remove what is no longer kept. ``now``: Unix seconds."""
        ...

    async def close(self) -> None: ...


Store = TypeVar("Store", bound=OwnedStore)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the owners differ in. ``name``: the owner, in spans. ``failure``: the store's own error.
    ``not_open``, ``not_swept``: what the log says when the store cannot be opened, or swept."""

    name: str
    interface: Interface
    failure: type[Exception]
    sweep_period_s: float
    not_open: str
    not_swept: str


class StoreOwner(DirectlyCalled, ABC, Generic[Store]):
    """If the store cannot be opened, the application keeps running, and the owner tries again."""

    def __init__(self, owns: Ownership, ports: range) -> None:
        self._owns = owns
        self._ports = ports
        self._opened: Store | None = None
        self._error = ""
        self._direct: DirectCalls | None = None

    async def begin(self) -> None:
        """Open the store, and from now on look after it."""
        await self._open()
        self._caring = asyncio.get_running_loop().create_task(self._care())

    @abstractmethod
    async def open_store(self) -> Store:
        """Raises: the store's own error."""

    async def address(self) -> PrivateAddress:
        """The address to which gateways send their calls."""
        if self._direct is None:
            name, interface = self._owns.name, self._owns.interface
            methods = {method: getattr(self, method) for method in interface}
            self._direct = DirectCalls(
                interface, methods, node_address(), call_tracer(name), ports=self._ports
            )
        return self._direct.address

    @property
    def store(self) -> Store:
        """Raises: the store's own error, if it could not be opened."""
        if self._opened is None:
            raise self._owns.failure(self._error)
        return self._opened

    async def _open(self) -> None:
        """A failure is logged once for each reason."""
        try:
            self._opened = await self.open_store()
        except self._owns.failure as error:
            if str(error) != self._error:
                logger.error("%s: %s", self._owns.not_open, error)
            self._error = str(error)

    async def _care(self) -> None:
        """Open the store, if it could not be opened; then remove now and then what is no longer kept."""
        while True:
            if self._opened is None:
                await asyncio.sleep(REOPEN_PERIOD_S)
                await self._open()
                continue
            try:
                await self._opened.sweep(time.time())
            except self._owns.failure as error:
                logger.warning("%s: %s", self._owns.not_swept, error)
            await asyncio.sleep(self._owns.sweep_period_s)

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Serve calls this through ``__del__``."""
        self._caring.cancel()
        if self._direct is not None:
            await self._direct.stop()
            self._direct = None
        await self.close_store()

    async def close_store(self) -> None:
        if self._opened is not None:
            store, self._opened = self._opened, None
            self._error = "closed"
            await store.close()
