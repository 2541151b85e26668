"""The list of replicas that should sleep: the autoscaling policy writes it in Serve's controller, engines
read it.

A Serve policy can only set the number of replicas, so the list goes through Ray's key-value store in the GCS,
where Serve's controller keeps its own state. Its Python API is not public (``ray.experimental.internal_kv``,
checked against Ray 2.60). When Ray moves, check that both functions exist and are initialised in Ray's
processes. Both block on a call to the GCS: about a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

NAMESPACE = b"promptly"

Announce = Callable[[str, str, Iterable[str]], None]


def announce(application: str, deployment: str, replicas: Iterable[str]) -> None:
    """Set which replicas of a deployment, by their unique ids, should sleep; all others should be awake."""
    value = json.dumps(sorted(replicas)).encode()
    _internal_kv_put(_key(application, deployment), value, overwrite=True, namespace=NAMESPACE)


def announced(application: str, deployment: str) -> frozenset[str]:
    """The replicas announced last; empty before the first announcement."""
    found = _internal_kv_get(_key(application, deployment), namespace=NAMESPACE)
    return frozenset(json.loads(found)) if found else frozenset()


def _key(application: str, deployment: str) -> bytes:
    return f"sleepers:{application}:{deployment}".encode()
