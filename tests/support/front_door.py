"""HAProxy with the project's config in front of something that runs: no Ray, no Serve."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ray.serve._private.haproxy import BackendConfig, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions

from deployments.launcher.ports import free_port
from deployments.platform.front_door import FrontDoor, keep_running, runs
from serve_app.settings.proxy import ProxySettings

REPLICA = "k3jq0z1x"
"""The id of the replica behind the door; the name that Serve gives a server of HAProxy ends with it."""


def listens_on_loopback_alone(port: int) -> bool:
    """Of IPv4: HAProxy's config has no other addresses."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")} == {
        f"0100007F:{port:04X}"
    }


@dataclass(frozen=True)
class Door:
    """A running HAProxy. ``folder`` holds its config, its sockets and its error pages."""

    port: int
    stats_port: int
    metrics_port: int
    folder: Path
    front_door: FrontDoor
    reloading: asyncio.Lock

    async def reload(self) -> None:
        """As Serve's actor does when its replicas change."""
        async with self.reloading:
            await self.front_door.reload()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        process = self.front_door.process
        assert process is not None
        return process.pid


@asynccontextmanager
async def door(
    url: str | None,
    settings: ProxySettings | None = None,
    *,
    runs: Callable[[Path], bool] = runs,
    gateways: Mapping[str, Path] | None = None,
    prefix: str = "/",
    **changes: Any,
) -> AsyncIterator[Door]:
    """In front of ``url`` below ``prefix``, or of no application at all; watched, as in Serve's actor.
    ``runs``: whether a program that the front door writes starts; ``gateways``: sockets by the id of a
    replica, of which the one at ``url`` is :data:`REPLICA`."""
    with tempfile.TemporaryDirectory(prefix="door-", dir="/tmp") as name:
        folder = Path(name)
        ports: list[int] = []
        while len(ports) < 3:
            ports.append(free_port(taken=ports))
        config = HAProxyConfig(
            http_options=HTTPOptions(host="127.0.0.1", port=ports[0]),
            stats_port=ports[1],
            metrics_port=ports[2],
            socket_path=str(folder / "a.sock"),
            server_state_base=name,
            server_state_file=str(folder / "server-state"),
            metrics_socket_path=str(folder / "m.sock"),
            has_received_routes=True,
            is_head=True,
            **changes,
        )
        path = str(folder / "haproxy.cfg")
        front_door = FrontDoor(
            config,
            _backends(url, prefix),
            path,
            settings=settings or ProxySettings(),
            runs=runs,
            gateways=lambda: gateways or {},
        )
        started = asyncio.ensure_future(front_door.start())
        reloading = asyncio.Lock()
        watching = asyncio.ensure_future(keep_running(front_door, started, reloading))
        try:
            await started
            yield Door(*ports, folder, front_door, reloading)
        finally:
            watching.cancel()
            await front_door.stop()
            await asyncio.gather(watching, return_exceptions=True)


def _backends(url: str | None, prefix: str) -> dict[str, BackendConfig]:
    if url is None:
        return {}
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    server = ServerConfig(f"SERVE_REPLICA_app-Gateway-{REPLICA}", address.hostname, address.port)
    backend = BackendConfig(
        "http-app", prefix, http_health_check_path="/health", servers=[server], app_name="app"
    )
    return {backend.name: backend}
