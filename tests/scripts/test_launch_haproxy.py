"""The HAProxy wrapper, run for real with a stand-in binary, and the admin socket."""

from __future__ import annotations

import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import launcher_haproxy as haproxy
import launcher_plan as plan
import pytest

SERVE_CONFIG = """\
frontend prometheus
    bind :9101
    mode http
frontend http_frontend
    bind *:8000
listen stats
  bind *:8404
  stats enable
"""

STATS = """\
# pxname,svname,qcur,qmax,scur,smax,
http_frontend,FRONTEND,,,7,9,
http-app,replica-1,0,0,2,3,
http-app,BACKEND,0,0,2,3,
default_backend,BACKEND,0,0,1,1,
stats,FRONTEND,,,0,0,
"""


@pytest.fixture
def folder(tmp_path: Path) -> plan.StartFolder:
    folder = plan.StartFolder(tmp_path)
    folder.haproxy.mkdir()
    return folder


@pytest.fixture
def ports() -> plan.Ports:
    return replace(plan.pick_ports(), haproxy_metrics=9101, haproxy_stats=8404)


def stand_in(folder: plan.StartFolder) -> dict[str, str]:
    """A binary that says its process id and its arguments."""
    binary = folder.root / "stand-in"
    binary.write_text('#!/bin/sh\necho "$$ $*"\n', encoding="utf-8")
    binary.chmod(0o700)
    return {"RAY_SERVE_HAPROXY_BINARY_PATH": str(binary)}


def run_wrapper(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    """The wrapper's process id, and what the binary behind it said."""
    command = [env["RAY_SERVE_HAPROXY_BINARY_PATH"], *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=10)
    return process.pid, said.strip()


def test_metrics_and_stats_stay_on_loopback_and_the_front_door_does_not_move(
    folder: plan.StartFolder, ports: plan.Ports
) -> None:
    config = folder.haproxy / "haproxy.cfg"
    config.write_text(SERVE_CONFIG, encoding="utf-8")
    env = haproxy.environment(ports, folder, stand_in(folder))

    run_wrapper(env, "-db", "-f", str(config), "-dR")

    binds = [line.split()[1] for line in config.read_text(encoding="utf-8").splitlines() if "bind" in line]
    assert binds == ["127.0.0.1:9101", "*:8000", "127.0.0.1:8404"]


def test_serve_sees_the_process_and_the_command_line_that_it_started(
    folder: plan.StartFolder, ports: plan.Ports
) -> None:
    config = folder.haproxy / "haproxy.cfg"
    config.write_text(SERVE_CONFIG, encoding="utf-8")
    env = haproxy.environment(ports, folder, stand_in(folder))

    pid, said = run_wrapper(env, "-db", "-f", str(config), "-sf", "1 2", "-x", "a.sock")

    assert said == f"{pid} -db -f {config} -sf 1 2 -x a.sock"


def test_the_binary_is_the_users_if_named_else_the_one_that_comes_with_ray() -> None:
    assert haproxy.find_binary({"RAY_SERVE_HAPROXY_BINARY_PATH": "/opt/haproxy"}) == "/opt/haproxy"

    bundled = haproxy.find_binary({})

    assert bundled is not None
    version = subprocess.run([bundled, "-v"], capture_output=True, text=True, check=True, timeout=10)
    assert "HAProxy" in version.stdout


def test_requests_are_counted_per_application_and_not_per_connection() -> None:
    assert haproxy.count_requests(STATS) == 3
    assert haproxy.count_requests("") == 0


def test_without_a_proxy_nothing_is_in_flight(folder: plan.StartFolder) -> None:
    admin = haproxy.Admin(folder)

    admin.stop_accepting()

    assert admin.requests_in_flight() == 0


def test_the_admin_socket_below_the_nodes_folder_is_asked(folder: plan.StartFolder) -> None:
    path = folder.haproxy / "node" / haproxy.ADMIN_SOCKET
    path.parent.mkdir()
    asked: list[bytes] = []

    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            asked.append(connection.recv(1024))
            connection.sendall(STATS.encode())

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(10)
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        in_flight = haproxy.Admin(folder).requests_in_flight()
        thread.join(timeout=10)

    assert in_flight == 3
    assert asked == [b"show stat\n"]
