"""Names of Ray Serve that are not public, in one place. Checked against Ray 2.60.

- ``ray.serve.context._get_global_client``: the running Serve instance; its HTTP options say which
  address the proxy listens on, which an application's builder is not told.
"""

from __future__ import annotations

from ray.exceptions import RayError
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException

CALL_ERRORS = (RayError, RayServeException, TimeoutError)
"""What a call through a deployment handle can raise: the other side's exception (wrapped), a dead or
unavailable replica, too slow an answer."""


def listening_host() -> str | None:
    """The address of Serve's proxy; ``None`` when Serve does not run (a builder called by a test)."""
    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else client.http_config.host
