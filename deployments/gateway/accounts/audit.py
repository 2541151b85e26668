"""Writes who did what administratively into the audit log, whose owner is another process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextvars import Context
from urllib.parse import parse_qsl

from deployments.gateway.accounts.client import AccountsClient
from deployments.gateway.request.authentication import OWNER
from deployments.gateway.request.exchange import Exchange, Handler
from serve_app.accounts.pace import ChangePace
from serve_app.api.roles import Role
from serve_app.api.routes import Access, Operation, Route
from serve_app.audit import AuditEvent
from serve_app.audit.values import BEGUN
from serve_app.errors import AccountsUnavailable, PromptlyError
from serve_app.request.log_line import RefusalBound

MOST_WAITING = 1000
"""Lines about what changed nothing that wait for their owner; further ones are left out, and counted."""

PAUSE_S = 1.0
STRANGERS_PER_S = 1 / 6
"""Lines about refused calls without a known key, on average: four gateways write less than a gigabyte in a
month. A line says how many were left out."""

EXPORT = ".export"
"""The end of the actions that have a line also without a query: other pages are looked at by a timer."""

SIGN_IN = "sign_in"
"""The action of a route that is open, whose handler finds out who it is."""

DONE = "done"
GIVEN_UP = "given_up"
"""The client left, or the gateway stopped, before the change was answered. It may have been made."""

logger = logging.getLogger("ray.serve")


class Auditor:
    """Made inside a running event loop; ``stop`` ends it. ``refused_per_s``: lines about refused calls. It is
    long because every kind of call ends in the same queue or the same two lines."""

    def __init__(self, client: AccountsClient, gateway: str, refused_per_s: float, pace: ChangePace) -> None:
        self._client = client
        self._pace = pace
        self._gateway = gateway
        self._refused = RefusalBound(refused_per_s, time.monotonic())
        # Strangers cannot hide others' lines, and cannot fill the log either.
        self._strangers = RefusalBound(
            min(refused_per_s, STRANGERS_PER_S), time.monotonic(), most=refused_per_s
        )
        self._waiting: deque[AuditEvent] = deque()
        self._left_out = 0
        self._wake = asyncio.Event()
        self._writing = asyncio.get_running_loop().create_task(self._write_on(), context=Context())

    async def answer(self, exchange: Exchange, route: Route, handler: Handler) -> None:
        """Answer a request that the gate has let in. What changes something has a line before it is done, and
        another before it is answered.

        Raises:
            AccountsUnavailable: there cannot be a line, so nothing was done.
            RateLimited: a tenant's administrators try too much.
        """
        operation = route.operations.get(exchange.method)
        if operation is None or operation.audit is None:
            await handler(exchange)
        elif operation.audit == SIGN_IN:
            await self._sign_in(exchange, route, handler)
        elif exchange.method == "GET":
            await self._look(exchange, operation, handler)
        else:
            await self._change(exchange, operation, handler)

    async def _look(self, exchange: Exchange, operation: Operation, handler: Handler) -> None:
        outcome = GIVEN_UP
        try:
            await handler(exchange)
            outcome = DONE
        except PromptlyError as error:
            outcome = error.details.code or error.details.type
            raise
        finally:
            if exchange.query or (operation.audit or "").endswith(EXPORT):
                self.note(self.event(exchange, operation, outcome))

    async def _sign_in(self, exchange: Exchange, route: Route, handler: Handler) -> None:
        exchange.audit_target = "console"  # the query holds a code
        try:
            await handler(exchange)
        except PromptlyError as error:
            self._refuse(exchange, route, error)
            raise
        self.note(self.event(exchange, route.operations.get(exchange.method), DONE))

    def refused(self, exchange: Exchange, route: Route, error: PromptlyError) -> None:
        """The gate has refused a request to an administrator's route."""
        if route.access is Access.ADMIN:
            self._refuse(exchange, route, error)

    def _refuse(self, exchange: Exchange, route: Route, error: PromptlyError) -> None:
        bound = self._refused if exchange.known is not None else self._strangers
        if not bound.allows(time.monotonic()):
            return
        left_out = bound.take_left_out()
        if left_out:
            self.note(self._own("audit.left_out", f"{left_out} refused calls"))
        operation = route.operations.get(exchange.method)
        self.note(self.event(exchange, operation, error.details.code or error.details.type))

    def note(self, event: AuditEvent) -> None:
        """Write a line soon; no request waits for it."""
        if len(self._waiting) >= MOST_WAITING:
            self._left_out += 1
            return
        self._waiting.append(event)
        self._wake.set()

    def event(self, exchange: Exchange, operation: Operation | None, outcome: str) -> AuditEvent:
        return event_of(exchange, operation, outcome, self._gateway)

    async def stop(self) -> None:
        """What waits is written, if its owner answers."""
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        try:
            while self._waiting:
                await self._client.call_once("audit", self._waiting[0], timeout_s=1.0)
                self._waiting.popleft()
        except AccountsUnavailable as error:
            logger.error("%d audit lines were not written: %s", len(self._waiting), error.reason)

    async def _change(self, exchange: Exchange, operation: Operation, handler: Handler) -> None:
        identity = exchange.identity
        if identity.role is not Role.ADMIN:
            self._pace.take(identity.tenant, time.monotonic())
        await self._client.call("audit", self.event(exchange, operation, BEGUN))
        outcomes: list[str] = []

        async def ended(outcome: str) -> None:
            if not outcomes:
                outcomes.append(outcome)
                await self._ended(self.event(exchange, operation, outcome))

        async def answered(status: int) -> None:
            await ended(DONE if status < 400 else str(status))

        exchange.before_answer = answered
        try:
            await handler(exchange)
        except PromptlyError as error:
            await ended(error.details.code or error.details.type)
            raise
        finally:
            exchange.before_answer = None
            await ended(GIVEN_UP)

    async def _ended(self, event: AuditEvent) -> None:
        try:
            await self._client.call("audit", event)
        except AccountsUnavailable as error:  # that it was begun is written
            logger.error("the audit log does not say yet how %s ended: %s", event.action, error.reason)
            self.note(event)

    async def _write_on(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                try:
                    await self._client.call_once("audit", self._waiting[0])
                    self._waiting.popleft()
                except AccountsUnavailable:
                    await asyncio.sleep(PAUSE_S)
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                self.note(self._own("audit.left_out", f"{left_out} lines that waited"))

    def _own(self, action: str, target: str) -> AuditEvent:
        return AuditEvent(
            actor="promptly",
            action=action,
            target=target,
            outcome=DONE,
            gateway=self._gateway,
            at=time.time(),
        )


def event_of(exchange: Exchange, operation: Operation | None, outcome: str, gateway: str) -> AuditEvent:
    """Who asked for what, by names that may be shown."""
    action = None if operation is None else operation.audit
    identity = exchange.known
    return AuditEvent(
        actor=_actor(exchange),
        role="" if identity is None else identity.role.value,
        tenant="" if identity is None else identity.tenant,
        action=action or f"{exchange.method} {exchange.facts.route}",
        target=exchange.audit_target or _target(exchange, operation),
        outcome=outcome,
        request_id=exchange.request_id,
        gateway=gateway,
        at=time.time(),
    )


def _actor(exchange: Exchange) -> str:
    identity = exchange.known
    if identity is None:
        return "unknown"
    if identity.key_id is not None:
        return f"key:{identity.key_id}"
    if identity is OWNER:
        return "admin-token"
    return f"subject:{identity.user}" if identity.user else "anyone"


def _target(exchange: Exchange, operation: Operation | None) -> str:
    """What the path names, and those parameters of the query that the operation has: others may hold
    anything."""
    known = () if operation is None else tuple(each.name for each in operation.query)
    query = parse_qsl(exchange.query.decode("latin-1"))
    named = [f"{name}={value}" for name, value in query if name in known]
    path = [exchange.path] if "{" in exchange.facts.route else []
    return " ".join([*path, *named])
