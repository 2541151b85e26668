"""Requests that reach the application past Serve's wrapper; Serve's accounts of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.http_util import RequestIdMiddleware
from ray.serve._private.replica import Replica

from deployments.platform.direct_ingress import NEEDED, direct_ingress
from deployments.platform.ingress_middleware import middlewares
from deployments.platform.request_account import ACCOUNT


class KnownReplica:
    """The names of Serve's replica that are read, with the values of a gateway's."""

    def __init__(self, app: Any = None, **changed: Any) -> None:
        self._deployment_id = SimpleNamespace(app_name="promptly")
        self._http_options = SimpleNamespace(request_timeout_s=None)
        self._route_prefix = "/"
        self._user_callable_asgi_app = app or answer
        self._user_callable_wrapper = SimpleNamespace(_run_user_code_in_separate_thread=False)
        self.max_queued_requests = -1
        self.ongoing: list[int] = [0]
        self.recorded: list[tuple[type | None, str | None, str, str]] = []
        vars(self).update(changed)

    @asynccontextmanager
    async def _start_request(self, metadata: Any) -> AsyncIterator[None]:
        self.ongoing.append(self.ongoing[-1] + 1)
        try:
            yield
        finally:
            self.ongoing.append(self.ongoing[-1] - 1)

    def _record_errors_and_metrics(
        self, error: Any, status: str | None, took_ms: float, metadata: Any
    ) -> None:
        assert took_ms >= 0
        kind = None if error is None else type(error)
        self.recorded.append((kind, status, metadata.route, metadata._http_method))

    async def _direct_ingress_asgi(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "serve", "path": scope["path"]})


async def answer(scope: Any, receive: Any, send: Any) -> None:
    scope[ACCOUNT].status = 201
    await send({"type": "app", "root_path": scope["root_path"], "id": scope[ACCOUNT].request_id})


def get(path: str, **headers: str) -> dict[str, Any]:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": "GET", "path": path, "headers": raw, "client": ("::1", 5)}


async def ask(replica: KnownReplica, scope: dict[str, Any]) -> dict[str, Any]:
    """What the client would get, through the middlewares as Serve stacks them."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    (ours,) = middlewares()
    app = ours.cls(RequestIdMiddleware(replica._direct_ingress_asgi))  # type: ignore[arg-type]
    await app(scope, None, send)  # type: ignore[arg-type]
    (message,) = sent
    return message


def test_serve_s_replica_has_every_name_that_is_read() -> None:
    """Those that its constructor sets are in its source; the others are attributes of the class."""
    source = Replica.__init__.__code__.co_names + sum(
        (
            each.__init__.__code__.co_names
            for each in Replica.__mro__[1:-1]
            if hasattr(each.__init__, "__code__")
        ),
        (),
    )
    assert [name for name in NEEDED if name not in source and not hasattr(Replica, name)] == []
    assert Replica._direct_ingress_asgi.__name__ == "_direct_ingress_asgi"


async def test_a_request_reaches_the_application_and_serve_s_accounts() -> None:
    replica = KnownReplica()
    assert await ask(replica, get("/v1/models", x_request_id="mine")) == {
        "type": "app",
        "root_path": "",
        "id": "mine",
    }
    assert (replica.ongoing, replica.recorded) == ([0, 1, 0], [(None, "201", "/", "GET")])


@pytest.mark.parametrize("given", ["", "a b", "x" * 129])
async def test_an_id_that_a_header_or_a_log_cannot_carry_is_replaced(given: str) -> None:
    message = await ask(KnownReplica(), get("/", x_request_id=given))
    assert len(message["id"]) == 32


async def test_the_route_prefix_is_the_application_s_root_path() -> None:
    replica = KnownReplica(_route_prefix="/llm")
    assert (await ask(replica, get("/llm/v1/models")))["root_path"] == "/llm"
    assert await ask(replica, get("/v1/models")) == {"type": "serve", "path": "/v1/models"}


@pytest.mark.parametrize("path", ["/-/healthz", "/-/routes"])
async def test_serve_answers_its_own_paths(path: str) -> None:
    assert await ask(KnownReplica(), get(path)) == {"type": "serve", "path": path}


@pytest.mark.parametrize("failure", [RuntimeError, asyncio.CancelledError])
async def test_a_failure_is_recorded_and_passed_on(failure: type[BaseException]) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise failure

    replica = KnownReplica(fail)
    with pytest.raises(failure):
        await ask(replica, get("/"))
    assert (replica.ongoing, replica.recorded) == ([0, 1, 0], [(failure, None, "/", "GET")])


@pytest.mark.parametrize(
    "changed",
    [
        {"max_queued_requests": 5},
        {"_http_options": SimpleNamespace(request_timeout_s=3.0)},
        {"_user_callable_wrapper": SimpleNamespace(_run_user_code_in_separate_thread=True)},
        {"_user_callable_asgi_app": None},
    ],
)
async def test_what_only_serve_s_wrapper_does_is_left_to_it(changed: dict[str, Any]) -> None:
    assert (await ask(KnownReplica(**changed), get("/")))["type"] == "serve"


async def test_a_replica_that_lacks_a_name_is_left_to_serve() -> None:
    replica = KnownReplica()
    del replica._route_prefix
    assert (await ask(replica, get("/")))["type"] == "serve"


def test_other_middlewares_in_between_are_not_jumped() -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None: ...

    assert direct_ingress(other) is None
    assert (
        direct_ingress(RequestIdMiddleware(RequestIdMiddleware(KnownReplica()._direct_ingress_asgi))) is None
    )  # type: ignore[arg-type]


async def test_a_websocket_reaches_the_application_past_serve_s_wrapper_and_is_accounted_for() -> None:
    replica = KnownReplica()
    socket = {"type": "websocket", "path": "/v1/realtime", "headers": [], "client": ("::1", 5)}
    assert (await ask(replica, socket))["type"] == "app"
    assert replica.ongoing == [0, 1, 0]
    assert replica.recorded == [(None, "201", "/", "WS")]
