"""The gateway's ASGI app: paths to handlers, and what surrounds every request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from deployments.gateway.admin import Admin
from deployments.gateway.admin_entries import AdminEntries
from deployments.gateway.catalogue import Catalogue
from deployments.gateway.dispatch import Dispatcher
from deployments.gateway.embeddings import EmbeddingsEndpoint
from deployments.gateway.flights import Flights
from deployments.gateway.generation import GenerationEndpoint
from deployments.gateway.http import ClientGone, Exchange, Handler
from deployments.gateway.passthrough import PassThrough
from deployments.gateway.services import Services
from deployments.gateway.verbatim import Verbatim
from deployments.telemetry import RequestTracer
from serve_app.errors import MethodNotAllowed, NoReplica, NotFound, OverCapacity, PromptlyError
from serve_app.headers import require_utf8
from serve_app.openai.requests import Endpoint

ALWAYS_ANSWERED = frozenset(
    {"/health", "/ready", "/admin/engines", "/admin/fleet", "/admin/latency", "/admin/traffic"}
)

logger = logging.getLogger("ray.serve")


class Paths:
    """Which handler answers a method and path; the first path that fits decides."""

    def __init__(self) -> None:
        self._routes: list[tuple[Route, Handler]] = []

    def add(self, path: str, methods: tuple[str, ...], handler: Handler) -> None:
        self._routes.append((Route(path, endpoint=_never_called, methods=list(methods)), handler))

    def find(self, scope: Scope) -> Handler:
        """Raises: NotFound, MethodNotAllowed."""
        allowed: set[str] = set()
        for route, handler in self._routes:
            match, _ = route.matches(scope)
            if match is Match.FULL and not allowed:
                return handler
            if match is Match.PARTIAL:
                allowed |= route.methods or set()
        if allowed:
            raise MethodNotAllowed(scope["method"], scope["path"], ", ".join(sorted(allowed)))
        raise NotFound(f"No such path: {scope['path']}.", code="not_found")


class GatewayApp:
    """Counts, times and traces every request, and turns errors into OpenAI-shaped responses."""

    def __init__(self, services: Services, dispatcher: Dispatcher, tracer: RequestTracer | None) -> None:
        self._services = services
        self._tracer = tracer
        self._paths = _paths(services, dispatcher, tracer)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})  # "unsupported data"
            return
        exchange = Exchange(scope, receive, send)
        if self._tracer is not None:
            name = f"{exchange.method} {exchange.path}"
            exchange.span = self._tracer.start(name, exchange.headers, exchange.timeline.start_ns)
        try:
            await self._answer(exchange, scope)
        finally:
            self._record(exchange)

    async def _answer(self, exchange: Exchange, scope: Scope) -> None:
        try:
            require_utf8(scope["headers"])
            handler = self._paths.find(scope)
            with self._place(exchange):
                await handler(exchange)
        except PromptlyError as error:
            await _end_with(exchange, error)
        except ClientGone:
            exchange.attributes["promptly.client_gone"] = 1
        except asyncio.CancelledError:
            # The server stops; a client that is there still must not take what it has for the whole answer.
            await _end_with(exchange, NoReplica("The gateway is shutting down.", code="shutting_down"))
            raise
        except Exception:
            logger.exception("request %s failed", exchange.request_id)
            await _end_with(exchange, PromptlyError("The gateway failed.", code="internal_error"))

    @contextmanager
    def _place(self, exchange: Exchange) -> Iterator[None]:
        """One of ``limits.max_concurrent_requests``, from when the request's body is there: a slow body keeps
        nobody out. Whoever asks how the gateway does needs none.

        Raises: OverCapacity: none is free; also before a body is read for which there is none now.
        """
        taken = False

        def take() -> None:
            nonlocal taken
            self._refuse_over_capacity()
            self._active += 1
            taken = True

        if exchange.path not in ALWAYS_ANSWERED:
            if exchange.announces_body:
                self._refuse_over_capacity()
                exchange.body_read = take
            else:
                take()
        try:
            yield
        finally:
            if taken:
                self._active -= 1

    def _refuse_over_capacity(self) -> None:
        limit = self._services.settings.limits.max_concurrent_requests
        if self._active >= limit:
            raise OverCapacity(f"{limit} requests are being answered (limits.max_concurrent_requests).", 1)

    def _record(self, exchange: Exchange) -> None:
        """After the last byte: nothing here delays an answer."""
        timeline = exchange.timeline
        for step in timeline.steps:
            self._services.latency.record(step.name, step.duration_ms)
        if timeline.steps:
            self._services.latency.record("total", timeline.elapsed_ms())
        if self._tracer is not None:
            attributes = exchange.attributes | {"http.response.status_code": exchange.status}
            self._tracer.finish(exchange.span, timeline, attributes)


def _paths(services: Services, dispatcher: Dispatcher, tracer: RequestTracer | None) -> Paths:
    catalogue, admin, flights = Catalogue(services), Admin(services), Flights()
    verbatim = Verbatim(dispatcher, tracer)
    other = PassThrough(services, verbatim)
    paths = Paths()
    for endpoint in Endpoint:
        generation = GenerationEndpoint(endpoint, services, dispatcher, flights, tracer)
        paths.add(endpoint.value, ("POST",), generation)
    paths.add("/v1/embeddings", ("POST",), EmbeddingsEndpoint(services, verbatim))
    paths.add("/v1/models", ("GET",), catalogue.list_models)
    paths.add("/v1/models/{model:path}", ("GET",), catalogue.one_model)
    paths.add("/health", ("GET",), catalogue.health)
    paths.add("/ready", ("GET",), catalogue.ready)
    paths.add("/admin/cache", ("GET", "DELETE"), admin.cache)
    paths.add("/admin/cache/entries", ("GET", "POST"), AdminEntries(services))
    paths.add("/admin/cache/feedback", ("POST",), admin.feedback)
    paths.add("/admin/engines", ("GET",), admin.engines)
    paths.add("/admin/fleet", ("GET",), admin.fleet)
    paths.add("/admin/latency", ("GET",), admin.latency)
    paths.add("/admin/traffic", ("GET",), admin.traffic)
    for path in ("/v1/{rest:path}", "/tokenize", "/detokenize"):
        paths.add(path, ("POST", "GET", "DELETE", "PUT", "PATCH"), other)
    return paths


async def _end_with(exchange: Exchange, error: PromptlyError) -> None:
    try:
        await exchange.fail(error)
    except ClientGone:
        exchange.attributes["promptly.client_gone"] = 1


async def _lifespan(receive: Receive, send: Send) -> None:
    """Nothing happens at start or stop: the deployment owns what lives longer than a request."""
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


def _never_called(_: object) -> Awaitable[None]:
    raise AssertionError("Paths only uses a route's matching")
