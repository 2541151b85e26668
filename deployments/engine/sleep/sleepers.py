"""Which replicas are to sleep: the autoscaling policy, in Serve's controller, says it, and engines read it.

Serve has no way from a policy to replicas but their number. Ray's key-value store in the GCS has: Serve's
controller keeps its own state there. Its Python names are not public (``ray.experimental.internal_kv``,
checked against Ray 2.60): when Ray moves, see that both functions are there and that a process of Ray's has
them initialised. Both ask the GCS and wait: about a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

NAMESPACE = b"promptly"

Announce = Callable[[str, str, Iterable[str]], None]


def announce(application: str, deployment: str, replicas: Iterable[str]) -> None:
    """From now on these replicas of a deployment, by their unique ids, are to sleep, and no others."""
    value = json.dumps(sorted(replicas)).encode()
    _internal_kv_put(_key(application, deployment), value, overwrite=True, namespace=NAMESPACE)


def announced(application: str, deployment: str) -> frozenset[str]:
    """Those that were announced last; none before the first time."""
    found = _internal_kv_get(_key(application, deployment), namespace=NAMESPACE)
    return frozenset(json.loads(found)) if found else frozenset()


def _key(application: str, deployment: str) -> bytes:
    return f"sleepers:{application}:{deployment}".encode()
