"""The ports of one start."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
ANY_INTERFACE = "0.0.0.0"
METRICS_PORT = 9102
"""Usual port for Prometheus: the metrics of Ray, Serve and vLLM."""

# Below the ports that Linux gives to outgoing connections (32768 and up) and that Serve gives its replicas
# (30000 to 31000), so that nothing takes a port between choice and use.
FREE_PORT_RANGE = range(20_000, 30_000)


@dataclass(frozen=True)
class Ports:
    """The ports of this start besides the HTTP port."""

    gcs: int
    dashboard: int
    dashboard_agent: int
    ray_client: int
    ray_metrics: int
    haproxy_metrics: int
    haproxy_stats: int
    fallback_proxy: int


def port_number(text: str) -> int:
    """The value of an option. Raises: ValueError: no port has this number."""
    number = int(text)
    if not 0 < number < 65536:
        raise ValueError(text)
    return number


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier start in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class Claims:
    """Ports that this start has chosen, and its processes bind many seconds later: another start on this
    machine chooses others. A claim is the name of an abstract Unix socket, which exists in one network
    namespace, as the port does, and ends with the process that holds it."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def claim(self, port: int) -> bool:
        """False: another start has it."""
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            name.bind(f"\0promptly-port-{port}")
        except OSError:
            name.close()
            return False
        self._held.append(name)
        return True

    def close(self) -> None:
        while self._held:
            self._held.pop().close()

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def free_port(*usual: int, taken: Collection[int] = ()) -> int:
    """A port that is free on all interfaces and not in ``taken``: a ``usual`` one, else a random one outside
    the ranges that the system and Serve use."""
    others = random.sample(FREE_PORT_RANGE, len(FREE_PORT_RANGE))
    candidates = (port for port in [*usual, *others] if port not in taken)
    return next(port for port in candidates if port_is_free(ANY_INTERFACE, port))


def pick_ports(claims: Claims, taken: frozenset[int] = frozenset()) -> Ports:
    """The usual ports where they are free (bookmarks and scrapers name them), else random ones. They are
    claimed."""
    picked = set(taken)

    def pick(*usual: int) -> int:
        while True:
            port = free_port(*usual, taken=picked)
            picked.add(port)
            if claims.claim(port):
                return port

    return Ports(
        gcs=pick(),
        dashboard=pick(8265),
        dashboard_agent=pick(),
        ray_client=pick(),
        ray_metrics=pick(METRICS_PORT),
        haproxy_metrics=pick(9101),
        haproxy_stats=pick(8404),
        fallback_proxy=pick(),
    )
