"""What a start tells its HAProxy, and the admin socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from deployments.launcher import haproxy
from deployments.launcher.config import ServeConfig
from deployments.launcher.folder import StartFolder
from deployments.launcher.ports import Ports

STATS = """\
# pxname,svname,qcur,qmax,scur,smax,
http_frontend,FRONTEND,,,7,9,
http-app,replica-1,0,0,2,3,
http-app,BACKEND,0,0,2,3,
default_backend,BACKEND,0,0,1,1,
stats,FRONTEND,,,0,0,
"""


@pytest.fixture
def folder(tmp_path: Path) -> StartFolder:
    folder = StartFolder(tmp_path)
    folder.haproxy.mkdir()
    return folder


def test_the_proxy_reads_its_settings_from_the_file_that_is_served(
    folder: StartFolder, ports: Ports, tmp_path: Path
) -> None:
    config = ServeConfig(tmp_path / "config.yaml", "127.0.0.1", 8000, "/", None, ())

    env = haproxy.environment(ports, folder, config)

    assert env["PROMPTLY_CONFIG_FILE"] == str(tmp_path / "config.yaml")


def test_requests_are_counted_per_application_and_not_per_connection() -> None:
    assert haproxy.count_requests(STATS) == 3
    assert haproxy.count_requests("") == 0


def test_without_a_proxy_nothing_is_in_flight(folder: StartFolder) -> None:
    admin = haproxy.Admin(folder)

    admin.stop_accepting()

    assert admin.requests_in_flight() == 0


def test_the_admin_socket_below_the_nodes_folder_is_asked(folder: StartFolder) -> None:
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
