"""HAProxy, which Serve runs as its proxy: files, ports, and draining."""

from __future__ import annotations

import csv
import io
import socket
from dataclasses import dataclass
from pathlib import Path

from deployments.launcher.config import ServeConfig
from deployments.launcher.folder import StartFolder
from deployments.launcher.ports import Ports

FRONTEND = "http_frontend"  # the name in Serve's template
ADMIN_SOCKET = "a.sock"
OWNERS_DOOR = "o.sock"  # serve_app/front_door/config.py
ADMIN_TIMEOUT_S = 2.0


def environment(ports: Ports, folder: StartFolder, config: ServeConfig) -> dict[str, str]:
    """Files and ports of this start, and the settings that deployments/platform/front_door.py reads."""
    place = folder.haproxy
    return {
        "PROMPTLY_CONFIG_FILE": str(config.path.resolve()),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(place / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(place / ADMIN_SOCKET),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(place / "m.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(place),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(place / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports.haproxy_metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports.haproxy_stats),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports.fallback_proxy),
    }


def owners_door(folder: StartFolder) -> Path | None:
    """The proxy's socket without TLS, for this user only; ``None`` if there is none (yet)."""
    return next(folder.haproxy.glob(f"*/{OWNERS_DOOR}"), None)


@dataclass(frozen=True)
class Admin:
    """The admin socket of this start's HAProxy. Without a socket (Python proxy, or not yet started) there are
    no requests.

    It belongs to the HAProxy of the last reload; an older one may still be finishing its requests.
    """

    folder: StartFolder

    def stop_accepting(self) -> None:
        """Refuse new connections; requests in flight continue."""
        self._ask(f"disable frontend {FRONTEND}")

    def requests_in_flight(self) -> int:
        return count_requests(self._ask("show stat"))

    def _ask(self, command: str) -> str:
        # Serve puts a folder named after the node between the configured folder and the socket.
        path = next(self.folder.haproxy.glob(f"*/{ADMIN_SOCKET}"), None)
        if path is None:
            return ""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ADMIN_TIMEOUT_S)
                connection.connect(str(path))
                connection.sendall(f"{command}\n".encode())
                return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
        except OSError:
            return ""


def count_requests(stats: str) -> int:
    """Requests that are being answered or wait, from the CSV of ``show stat``."""
    rows = csv.DictReader(io.StringIO(stats.removeprefix("# ")))
    return sum(int(row["scur"] or 0) for row in rows if row["svname"] == "BACKEND")
