"""A WebSocket that keeps one member, and its slot there, from the first event to the last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.call import SlotRequest
from deployments.gateway.request.order import Order
from deployments.gateway.send.sender import Destination
from deployments.wire.upstream import ConnectionRefused
from deployments.wire.websocket import MemberSocket, open_socket
from serve_app.fleet import Dispatch
from serve_app.request.failover import Tried
from serve_app.traffic import Traffic

TURN_TOKENS = 256
"""Reserved for what a session does first; then as much as it used the last time."""


class Pinned:
    """The open WebSocket. ``served_as`` is the member's name for the model. Close it once."""

    def __init__(
        self, socket: MemberSocket, dispatch: Dispatch, admission: Admission, served_as: str
    ) -> None:
        self.socket = socket
        self.member = dispatch.member.name
        self.report = dispatch.member.report
        self.served_as = served_as
        self._dispatch = dispatch
        self._admission = admission

    async def close(self) -> None:
        self._admission.end(self._dispatch, complete=False)
        await self.socket.close()


class Pins:
    """Opens them. ``destinations`` by any name of a model."""

    def __init__(
        self,
        destinations: Mapping[str, Destination],
        traffic: Traffic,
        *,
        max_attempts: int,
        max_message_bytes: int,
        answer_timeout_s: float,
    ) -> None:
        self._destinations = destinations
        self._traffic = traffic
        self._max_attempts = max_attempts
        self._max_message_bytes = max_message_bytes
        self._answer_timeout_s = answer_timeout_s

    async def open(self, model: str, asked: SlotRequest, headers: Mapping[str, str]) -> Pinned:
        """Opens a WebSocket at the member that routing prefers; at another one only if it refuses the
        connection.

        Raises: OverCapacity, NoReplica, UpstreamFailed, UpstreamTimeout, and as ``Account.place``.
        """
        self._traffic.requests += 1
        to = self._destinations[model]
        if asked.account is not None:
            await asked.account.place(Order(to.own, to.admission.room.model, 0, TURN_TOKENS))
        demand = to.admission.demand
        if demand is None:
            return await self._open(to, asked, headers)
        counted = demand.came(0.0, time.monotonic(), cold=to.admission.room.is_cold)
        try:
            pinned = await self._open(to, asked, headers)
        except asyncio.CancelledError:
            demand.withdrew(counted, time.monotonic())
            raise
        except BaseException:
            demand.failed(counted)
            raise
        if pinned.report.is_static:
            demand.went_elsewhere(counted)
        else:
            demand.began(counted, None)
        return pinned

    async def _open(self, to: Destination, asked: SlotRequest, headers: Mapping[str, str]) -> Pinned:
        tried = Tried()
        while True:
            dispatch = await to.admission.place(asked, tried.names)
            report = dispatch.member.report
            try:
                socket = await open_socket(
                    report,
                    asked.path,
                    headers,
                    max_message_bytes=self._max_message_bytes,
                    answer_timeout_s=self._answer_timeout_s,
                )
            except BaseException as error:
                to.admission.end(dispatch, complete=False)
                if not isinstance(error, ConnectionRefused):
                    raise
                tried.refused(dispatch.member.name)
                to.admission.unreachable(dispatch.member)
                if tried.is_spent(self._max_attempts) or not to.admission.room.has_other(asked, tried):
                    raise
                self._traffic.failovers += 1
                continue
            to.admission.began(dispatch, time.monotonic(), streamed=False)
            return Pinned(socket, dispatch, to.admission, report.served_as or to.own)
