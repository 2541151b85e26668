"""Helpers on non-public names of Ray Serve. Checked against Ray 2.60; watch them when Ray moves.

- ``ray.serve.context._get_global_client``: the running Serve instance; its HTTP options say which
  address the proxy listens on, which an application's builder does not get. It also lists the statuses alone:
  ``serve.status`` asks for all details, and takes tens of milliseconds to read them.
- ``DeploymentBroadcastResponse._fetch_replica_results_async``: ``broadcast`` gives all answers or none; one
  replica that hangs must not hide the others.

Ray is imported inside the functions, because most parts of the gateway use this module, and importing one of
them must not take the second that importing Ray takes. A replica has imported Ray before it serves, so there
each of these imports is only a look-up in ``sys.modules``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve._private.common import DeploymentStatusInfo
    from ray.serve.handle import DeploymentHandle


def call_errors() -> tuple[type[Exception], ...]:
    """What a call through a deployment handle can raise: the remote exception (wrapped), a dead or
    unavailable replica, a time-out. Where Ray was never imported, nothing can raise its errors."""
    if "ray" not in sys.modules:
        return (TimeoutError,)
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    return (RayError, RayServeException, TimeoutError)


def means_no_replica(error: Exception) -> bool:
    """Whether a call failed because its deployment has no replica."""
    if "ray" not in sys.modules:
        return False
    from ray.serve.exceptions import DeploymentUnavailableError

    return isinstance(error, DeploymentUnavailableError)


def is_connected() -> bool:
    """Whether this process is connected to Ray. One that has not imported Ray is not."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def deployment_statuses() -> Mapping[tuple[str, str], DeploymentStatusInfo]:
    """What Serve's controller says of each deployment, by application and name; empty without a connection
    to Ray, because the question would start a Ray of its own."""
    if not is_connected():
        return {}
    from ray.serve.context import _get_global_client

    client = _get_global_client(raise_if_no_controller_running=False)
    applications = [] if client is None else client.list_serve_statuses()
    return {(each.name, one.name): one for each in applications for one in each.deployment_statuses}


def cause_of(error: BaseException) -> BaseException:
    """The remote exception that Ray wrapped: its text is the one line worth reading."""
    return getattr(error, "cause", None) or error


def node_address() -> str:
    """The address at which other nodes reach this node."""
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def listening_host() -> str | None:
    """The address of Serve's proxy; ``None`` when Serve does not run (a builder called by a test)."""
    from ray.serve.context import _get_global_client

    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else client.http_config.host


async def ask_every_replica(
    handle: DeploymentHandle[Any], method: str, timeout_s: float, *arguments: Any
) -> tuple[list[Any], int]:
    """Call a method on every replica; returns the results that came in time, and the number of replicas that
    failed or did not answer.

    Raises:
        TimeoutError: the list of replicas is not known in time.
    """
    response = handle.broadcast(method, *arguments)
    replicas = await asyncio.wait_for(response._fetch_replica_results_async(), timeout_s)
    answers = await asyncio.gather(
        *(_answer(replica, timeout_s) for replica in replicas), return_exceptions=True
    )
    good = [answer for answer in answers if not isinstance(answer, BaseException)]
    return good, len(answers) - len(good)


async def _answer(replica: Any, timeout_s: float) -> Any:
    return await asyncio.wait_for(replica.get_async(), timeout_s)
