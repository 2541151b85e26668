"""Why fleets were scaled: the autoscaling policy writes it in Serve's controller, gateways read it.

It goes through Ray's key-value store in the GCS, as the list of sleeping replicas does
(``engine/sleep/announcements.py``): Serve does not publish a policy's reason. The API is not public
(``ray.experimental.internal_kv``, checked against Ray 2.60). Each call blocks for about a millisecond.
"""

from __future__ import annotations

import logging

from deployments.platform.serve import is_connected
from serve_app.autoscaling.changes import ScalingChange, decoded, encoded, with_change

NAMESPACE = b"promptly"

logger = logging.getLogger("ray.serve")


def record_change(application: str, deployment: str, change: ScalingChange) -> None:
    """Keep it. What goes wrong is logged: scaling does not depend on it."""
    if not is_connected():
        return
    from ray.experimental.internal_kv import _internal_kv_put

    try:
        data = encoded(with_change(recorded_changes(application, deployment), change))
        _internal_kv_put(_key(application, deployment), data, overwrite=True, namespace=NAMESPACE)
    except Exception as error:
        logger.warning("the reason of a scaling decision was not kept: %s", type(error).__name__)


def recorded_changes(application: str, deployment: str) -> list[ScalingChange]:
    """The oldest first; empty without a connection to Ray. It blocks: call it in a thread."""
    if not is_connected():
        return []
    from ray.experimental.internal_kv import _internal_kv_get

    return decoded(_internal_kv_get(_key(application, deployment), namespace=NAMESPACE))


def _key(application: str, deployment: str) -> bytes:
    return f"scaling:{application}:{deployment}".encode()
