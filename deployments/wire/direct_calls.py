"""Calls on a request's path, from a gateway to the embedder and the cache, over the replicas' own listeners.

A call through a Serve handle takes about 3 ms on a slow core, as long as an embedding; over a kept connection
it takes less than 1 ms. Serve still starts, checks and replaces the replicas. Its handle supplies the
addresses, and is the fallback when no address is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.types import Receive, Scope, Send

from deployments.platform.serve import ask_every_replica
from deployments.platform.telemetry import TRACEPARENT, CallTracer
from deployments.wire.http1 import BrokenConnection, NoConnection, Origin, request_bytes
from deployments.wire.listener import PrivateListener, read_body
from deployments.wire.pool import ConnectionPool
from serve_app.settings.network import ANY_PORT
from serve_app.wire.calls import Interface, Wire, WireError
from serve_app.wire.private_address import PrivateAddress

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

ADDRESS_METHOD = "address"
"""The method that a directly callable deployment must have: ``async def address(self) -> PrivateAddress``."""

ASK_TIMEOUT_S = 1.0
RETRY_S = 1.0
REFRESH_S = 30.0
"""How soon a new replica is found; one that is gone is noticed by the first call to it."""

STOP_TIMEOUT_S = 1.0
"""Many times the duration of a call."""

CONNECT_TIMEOUT_S = 1.0
IDLE_CONNECTION_S = 60.0
READ_AHEAD = 1 << 20
"""Bytes; far more than a response has."""

WATCH_AFTER_S = 0.005
"""Most calls have ended by then, and cost no watching."""

Method = Callable[..., Awaitable[Any]]
Found = TypeVar("Found")

logger = logging.getLogger("ray.serve")


class DirectCallFailed(Exception):
    """The remote method raised an error; the message is its type and text."""


class NotAnswered(Exception):
    """The listener at the address is not, or no longer, the replica that published it."""


class DirectCalls:
    """The server side: serves some of an object's methods on a listener in the running event loop.

    Arguments and results are encoded as ``interface`` declares. Nothing is read from a caller that has not
    proven that it knows the secret. With a ``tracer`` each call of a traced request has a span. Calls of
    ``abandoned`` methods are cancelled when their caller leaves; all others go on to their end.
    """

    def __init__(
        self,
        interface: Interface,
        methods: Mapping[str, Method],
        host: str,
        tracer: CallTracer | None = None,
        *,
        abandoned: Collection[str] = (),
        ports: range = ANY_PORT,
    ) -> None:
        """Raises: SettingsError: none of ``ports`` is free at ``host``."""
        self._wire = Wire(interface)
        self._tracer = tracer
        self._methods = {f"/{name}": (name, methods[name]) for name in interface}
        self._abandoned = {f"/{name}" for name in abandoned}
        self._listener = PrivateListener(self._answer, host, ports=ports)
        self._listener.start()

    @property
    def address(self) -> PrivateAddress:
        return self._listener.address

    def send_held(self, keys: Iterable[str]) -> None:
        """A gateway keeps the traces of these requests."""
        if self._tracer is not None:
            self._tracer.send_held(keys)

    async def stop(self) -> None:
        """Stop the listener. Callers whose call is cut off repeat it through the handle."""
        await self._listener.close(STOP_TIMEOUT_S)
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.shut_down)

    def forget(self) -> None:
        """Remove the socket from disk, because this process ends."""
        self._listener.remove_socket()
        if self._tracer is not None:
            self._tracer.shut_down()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        arguments = await read_body(receive)
        if arguments is None:  # the caller disconnected
            return
        parent = None
        if self._tracer is not None:
            parent = next((value for name, value in scope["headers"] if name == b"traceparent"), None)
        path = scope["path"]
        work = self._result(path, arguments, None if parent is None else parent.decode("ascii", "replace"))
        found = await (_unless_left(receive, work) if path in self._abandoned else work)
        if found is None:
            return
        status, body = found
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _result(self, path: str, body: bytes, parent: str | None) -> tuple[int, bytes]:
        name, method = self._methods.get(path, ("", None))
        if method is None:
            return 404, path.encode()
        try:
            arguments = self._wire.decode_arguments(name, body)
        except WireError as error:
            return 400, str(error).encode()
        try:
            if self._tracer is None or parent is None:
                found = await method(*arguments)
            else:
                with self._tracer.span(name, parent):
                    found = await method(*arguments)
            return 200, self._wire.encode_result(name, found)
        except Exception as error:  # any error is returned to the caller
            return 500, f"{type(error).__name__}: {error}".encode()


async def _unless_left(receive: Receive, work: Awaitable[Found]) -> Found | None:
    """What ``work`` gives; ``None`` if the caller leaves before: then it is cancelled."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    watching: list[asyncio.Task[None]] = []
    left = False

    async def watch() -> None:
        nonlocal left
        await receive()  # the request is whole: the next message is that the caller has left
        left = True
        task.cancel()

    timer = loop.call_later(WATCH_AFTER_S, lambda: watching.append(loop.create_task(watch())))
    try:
        return await work
    except asyncio.CancelledError:
        if not left:
            raise
        task.uncancel()
        return None
    finally:
        timer.cancel()
        for each in watching:
            each.cancel()


class DirectlyCalled:
    """A deployment that has a listener of its own once a gateway asked for its address."""

    _direct: DirectCalls | None = None

    async def send_held(self, keys: Sequence[str]) -> None:
        """A gateway keeps the traces of these requests: the spans that wait for this are sent."""
        if self._direct is not None:
            self._direct.send_held(keys)


class DirectClient:
    """The client side of one deployment's ``interface``. Only for calls that may be repeated.

    A call goes to the replica with the fewest calls in flight from this client.
    """

    def __init__(self, handle: DeploymentHandle[Any], interface: Interface) -> None:
        self._handle = handle
        self._wire = Wire(interface)
        self._addresses: dict[PrivateAddress, Origin] = {}
        self._in_flight: Counter[PrivateAddress] = Counter()
        self._connections = ConnectionPool(
            connect_timeout_s=CONNECT_TIMEOUT_S, idle_s=IDLE_CONNECTION_S, read_ahead=READ_AHEAD
        )
        self._lost = asyncio.Event()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def refresh(self) -> None:
        """Fetch the replicas' addresses. If that fails, the known ones are kept."""
        try:
            found, _ = await ask_every_replica(self._handle, ADDRESS_METHOD, ASK_TIMEOUT_S)
        except Exception as error:  # still starting, or Serve's controller is down: use the handle
            logger.debug("addresses not known: %r", error)
            return
        self._addresses = {address: Origin.behind(address) for address in found}

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method. Raises: the method's error, as :class:`DirectCallFailed` or as Serve wraps it;
        WireError: the interface does not declare the call."""
        address = min(self._addresses, key=self._in_flight.__getitem__, default=None)
        if address is not None:
            self._in_flight[address] += 1
            try:
                return await self._post(address, method, args)
            except (NoConnection, BrokenConnection, NotAnswered) as error:
                logger.info("%s does not answer directly: %r", address.url, error)
                self._forget(address)
            finally:
                self._in_flight[address] -= 1
        return await getattr(self._handle, method).remote(*args)

    async def close(self) -> None:
        self._following.cancel()
        self._connections.close()

    async def _post(self, address: PrivateAddress, method: str, args: tuple[Any, ...]) -> Any:
        body = self._wire.encode_arguments(method, args)
        origin = self._addresses[address]
        parent = TRACEPARENT.get()
        headers = {} if parent is None else {"traceparent": parent}
        request = request_bytes(origin, "POST", f"/{method}", headers, body)
        status, answer = await self._connections.ask(origin, request)
        if status == 500:
            raise DirectCallFailed(answer.decode(errors="replace"))
        if status != 200:
            raise NotAnswered(f"status {status}")
        try:
            return self._wire.decode_result(method, answer)
        except WireError as error:  # a replica of another version, during an update
            raise NotAnswered(str(error)) from error

    def _forget(self, address: PrivateAddress) -> None:
        self._addresses.pop(address, None)
        self._lost.set()

    async def _follow(self) -> None:
        while True:
            await self.refresh()
            self._lost.clear()
            try:
                async with asyncio.timeout(REFRESH_S if self._addresses else RETRY_S):
                    await self._lost.wait()
            except TimeoutError:
                continue
