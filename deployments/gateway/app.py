"""The gateway's ASGI app: it maps paths to handlers, and surrounds every request with checks and records."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from deployments.gateway.accounts.audit import Auditor
from deployments.gateway.request.connected import ClientGone
from deployments.gateway.request.entrance import Entrance, Senders
from deployments.gateway.request.exchange import Exchange, Handler
from deployments.gateway.request.finished import Finished
from deployments.gateway.request.gate import Gate
from deployments.gateway.request.socket import ClientSocket
from deployments.platform.log_context import CURRENT
from deployments.platform.telemetry import TRACEPARENT, RequestTracer
from serve_app.api.door import Door, refuse_packed, require_media_type
from serve_app.api.routes import ROUTES, Access, Route
from serve_app.console import FILES
from serve_app.errors import Forbidden, MethodNotAllowed, NoReplica, NotFound, OverCapacity, PromptlyError
from serve_app.request.headers import require_utf8
from serve_app.request.log_line import PROBES
from serve_app.request.record import trace_id_of
from serve_app.settings import LimitSettings

PROBED = {"/health", "/ready"}
LOAD = {"/admin/engines", "/admin/fleet", "/admin/latency", "/admin/traffic"}
PAGES = {"/admin/alerts", "/admin/requests", "/admin/plan"}
CONSOLE = {"/", "/console"} | {f"/console/{name}" for name in FILES}
ALWAYS_ANSWERED = frozenset(PROBED | LOAD | PAGES | CONSOLE)
"""What an operator looks at when everything else is refused."""

LISTS = frozenset({"/v1/models", "/v1/models/{model:path}"})
"""Routes whose answers need no engine; clients ask for them first, also when the gateway is full."""

LISTS_AT_ONCE, LISTS_OF_A_TENANT = 64, 16
"""How many of these are answered at once, beside ``limits.max_concurrent_requests``."""

SOCKETS = frozenset(route.path for route in ROUTES if route.is_socket)

logger = logging.getLogger("ray.serve")


class Paths:
    """The route of each path; the first that matches decides."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._exact = {route.path: route for route in ROUTES if "{" not in route.path}
        self._patterns = [(compile_path(route.path)[0], route) for route in ROUTES if "{" in route.path]

    def find(self, method: str, path: str) -> tuple[Route, Handler]:
        """Raises: NotFound, MethodNotAllowed."""
        route = self._exact.get(path) or next(
            (route for pattern, route in self._patterns if pattern.match(path)), None
        )
        if route is None:
            raise NotFound(f"No such path: {path}.", code="not_found")
        if method not in route.methods:
            raise MethodNotAllowed(method, path, ", ".join(sorted(route.methods)))
        return route, self._handlers[route.handler]


class Answering:
    """Counts the requests that are being answered: all, of which there may be ``most``, and those of each of
    several tenants, of which there may be ``share``. ``named``: where both bounds come from; ``room_of`` and
    ``part_of``: how much of the former and the latter is this gateway's."""

    def __init__(
        self,
        most: int,
        share: int,
        named: tuple[str, str],
        *,
        room_of: Callable[[int], int] = int,
        part_of: Callable[[int], int] = int,
    ) -> None:
        self._most = most
        self._share = share
        self._named = named
        self._room_of = room_of
        self._part_of = part_of
        self._active = self._refused = 0
        self._of_tenants: Counter[str] = Counter()

    def demand(self) -> int:
        """How many requests are answered, or were refused since this was asked last."""
        refused, self._refused = self._refused, 0
        return self._active + refused

    def running(self) -> int:
        return self._active

    def tenants(self) -> Collection[str]:
        """Those whose requests are answered now, of several."""
        return self._of_tenants.keys()

    def expect(self, exchange: Exchange, *, reads_body: bool = True) -> None:
        """The request will be one of them once its body is there: a slow body keeps no other request out.

        Raises: OverCapacity: there are as many; also before a body is read that could not be answered now.
        """
        exchange.tenant_known = self._count_tenant
        if reads_body and exchange.announces_body:
            self._refuse_over_capacity()
            exchange.body_read = self._count
        else:
            self._count(exchange)

    def end(self, exchange: Exchange) -> None:
        self._active -= exchange.is_counted
        tenant = exchange.counted_for
        if tenant is not None:
            self._of_tenants[tenant] -= 1
            if not self._of_tenants[tenant]:
                del self._of_tenants[tenant]

    def _count(self, exchange: Exchange) -> None:
        self._refuse_over_capacity()
        self._active += 1
        exchange.is_counted = True
        if exchange.tenant_known is None:  # the tenant is known already
            self._count_tenant(exchange)

    def _count_tenant(self, exchange: Exchange) -> None:
        """Once the request counts itself: from then on it is one of its tenant's, too."""
        exchange.tenant_known = None
        tenant = exchange.facts.tenant
        if not exchange.is_counted or tenant is None:
            return
        if self._of_tenants[tenant] >= self._part_of(self._share):
            raise OverCapacity(
                f"{self._share} requests of this tenant are being answered ({self._named[1]}).", 1
            )
        self._of_tenants[tenant] += 1
        exchange.counted_for = tenant

    def _refuse_over_capacity(self) -> None:
        if self._active >= self._room_of(self._most):
            self._refused += 1
            raise OverCapacity(f"{self._most} requests are being answered ({self._named[0]}).", 1)


class Turns:
    """Among several tenants, each's requests begin one by one; operators wait for nobody. ``senders``:
    ``None``: there is one tenant."""

    def __init__(self, senders: Senders | None, answering: Answering) -> None:
        self._senders = senders
        self._answering = answering
        self._entrance = Entrance(answering.tenants)
        self.longest_s = self._entrance.longest_s

    def demand(self) -> int:
        """Requests that are answered or wait for their turn, or were refused since this was asked last."""
        return self._answering.demand() + self._entrance.waiting()

    async def wait(self, exchange: Exchange, scope: Scope) -> None:
        """For the request's turn."""
        is_operators = exchange.path in ALWAYS_ANSWERED or exchange.path.startswith("/admin/")
        if self._senders is None or is_operators or exchange.method == "OPTIONS":
            return
        arrived_ns = exchange.timeline.clock()
        if await self._entrance.turn(self._senders.place(scope["headers"])):
            exchange.timeline.add("turn", arrived_ns)


class GatewayApp:
    """Counts, times and traces every request, and turns errors into OpenAI-shaped responses."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        door: Door,
        finished: Finished,
        tracer: RequestTracer | None,
        *,
        gate: Gate,
        auditor: Auditor | None = None,
        limits: LimitSettings,
        part_of: Callable[[int], int] = int,
        room_of: Callable[[int], int] = int,
    ) -> None:
        """``part_of``: how much of a limit of the application is this gateway's; ``room_of``: how many of all
        requests that may run are, beside those that others run."""
        self._paths = Paths(handlers)
        self._door = door
        self._finished = finished
        self._tracer = tracer
        self._gate = gate
        self._auditor = auditor
        self._answer_timeout_s = limits.request_timeout_s
        names = ("limits.max_concurrent_requests", "limits.max_concurrent_requests_per_tenant")
        self._answering = Answering(
            limits.max_concurrent_requests, limits.share_of_requests, names, room_of=room_of, part_of=part_of
        )
        self.running = self._answering.running
        self._turns = Turns(gate.senders, self._answering)
        self.demand, self.waits_s = self._turns.demand, self._turns.longest_s
        self._listing = Answering(LISTS_AT_ONCE, LISTS_OF_A_TENANT, ("lists of models",) * 2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            exchange = ClientSocket(scope, receive, send).exchange
        else:
            exchange = Exchange(scope, receive, send)
        await self._turns.wait(exchange, scope)
        if self._tracer is not None and exchange.path[1:] not in PROBES:
            span = self._tracer.start(exchange.method, exchange.headers, exchange.timeline.unix_ns)
            exchange.span = span
            TRACEPARENT.set(span.traceparent)
        exchange.trace_id = self._trace_id(exchange)
        CURRENT.set((exchange.request_id, exchange.trace_id))  # the task is this request's own
        try:
            await self._answer(exchange, scope)
        finally:
            self._record(exchange)

    def _trace_id(self, exchange: Exchange) -> str | None:
        if self._tracer is not None and exchange.span is not None:
            return self._tracer.trace_id(exchange.span)
        return trace_id_of(exchange.headers.get("traceparent"))

    async def _answer(self, exchange: Exchange, scope: Scope) -> None:
        exchange.response_headers |= self._door.response_headers(exchange.headers)
        try:
            require_utf8(scope["headers"])
            self._door.admit(exchange.method, exchange.headers)
            if self._door.is_preflight(exchange.method, exchange.headers):
                await exchange.respond_empty(self._door.preflight_headers(exchange.headers))
                return
            if exchange.socket is not None and exchange.path not in SOCKETS:
                raise Forbidden(f"There is no WebSocket at {exchange.path}.", code="no_websocket")
            route, handler = self._paths.find(exchange.method, exchange.path)
            exchange.facts.route, exchange.facts.endpoint = route.path, route.handler
            accepted = route.media_types(exchange.method)
            if accepted:
                require_media_type(exchange.headers.get("content-type"), accepted)
                refuse_packed(exchange.headers.get("content-encoding"))
            is_list = route.path in LISTS
            answering = self._listing if is_list else self._answering
            if exchange.path not in ALWAYS_ANSWERED:
                answering.expect(exchange, reads_body=not is_list)
            try:
                await self._enter(exchange, route, handler)
                # Until then it is one of its tenant's: nothing else bounds how many large answers wait here
                # for clients that do not read.
                await exchange.until_taken(self._answer_timeout_s)
            finally:
                answering.end(exchange)
                if exchange.body_done is not None:
                    exchange.body_done()
        except PromptlyError as error:
            await _end_with(exchange, error)
        except ClientGone:
            exchange.facts.client_gone = True
        except asyncio.CancelledError:
            # The server stops: a client that is still connected must not take a part for the whole answer.
            await _end_with(exchange, NoReplica("The gateway is shutting down.", code="shutting_down"))
            raise
        except Exception:
            logger.exception("request %s failed", exchange.request_id)
            await _end_with(exchange, PromptlyError("The gateway failed.", code="internal_error"))

    async def _enter(self, exchange: Exchange, route: Route, handler: Handler) -> None:
        try:
            await self._gate.enter(exchange, route)
        except PromptlyError as error:
            if self._auditor is not None:
                self._auditor.refused(exchange, route, error)
            raise
        if self._auditor is None or route.access is Access.KEY:
            await handler(exchange)
        else:
            await self._auditor.answer(exchange, route, handler)

    def _record(self, exchange: Exchange) -> None:
        """After the last byte: nothing here delays an answer."""
        record = self._finished(exchange)
        if self._tracer is not None and exchange.span is not None:
            self._tracer.finish(exchange.span, exchange.timeline, record)


async def _end_with(exchange: Exchange, error: PromptlyError) -> None:
    try:
        await exchange.fail(error)
    except ClientGone:
        exchange.facts.client_gone = True


async def _lifespan(receive: Receive, send: Send) -> None:
    """Nothing happens at start or stop: the deployment owns all that outlives a request."""
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})
